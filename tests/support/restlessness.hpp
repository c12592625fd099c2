// How much threads that sleep on this machine wake up late just now: what tests on the paced host
// must forgive.
#pragma once

namespace parsim::testing {

/// By how much the same naps of two threads differ in length, as a fraction, on this machine just
/// now: what no prediction can know.
[[nodiscard]] double restlessness();

}  // namespace parsim::testing
