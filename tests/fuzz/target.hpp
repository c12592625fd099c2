// What a fuzz target is. The same function runs under libFuzzer (preset `fuzz`) and, in the normal
// tests, over its corpus and a few thousand mutations of it (replay.cpp).
#pragma once

#include <string>

#include "core/errors.hpp"

namespace parsim::fuzz {

/// Does everything with an input that a hostile user could have done. Returns if that is all right;
/// whatever it throws is a bug. Each *_fuzz.cpp defines it.
void run(const std::string& input);

/// Calls a reader that may refuse what it reads.
template <class Read>
void may_refuse(const Read& read) {
  try {
    read();
  } catch (const InputError&) {
    // As it should be: the other outcome that is allowed.
  }
}

}  // namespace parsim::fuzz
