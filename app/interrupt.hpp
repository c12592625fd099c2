// What a long run leaves when SIGINT or SIGTERM ends it: the answer as far as it is known.
#pragma once

#include <cstdio>

#include "report/document.hpp"

namespace parsim::app {

/// How answers are printed, and where; said before any is kept.
void print_when_interrupted(const report::Format& format, const report::Terminal& terminal,
                            std::FILE* stream);

/// From now on SIGINT and SIGTERM print this document and end the program with 128 + the signal's
/// number. Documents before are forgotten. Nothing happens before print_when_interrupted().
void keep_for_interrupt(const report::Document& document);
/// SIGINT and SIGTERM end the program as they do by default.
void forget_for_interrupt();

}  // namespace parsim::app
