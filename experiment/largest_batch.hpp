// Batches whose bytes can still be counted.
#pragma once

#include <cstdint>
#include <string>

#include "core/network.hpp"
#include "core/units.hpp"

namespace parsim::experiment {

/// Throws InputError with `where` if what the layers hand on in a step, of all samples, takes more
/// than 2^55 bytes (36 PB): sums of what devices hold, and of what they send to each other, must
/// stay within 64 bits.
void check_batch(const Network& network, Precision precision, std::int64_t batch,
                 const std::string& where);

}  // namespace parsim::experiment
