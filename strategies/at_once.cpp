#include "strategies/at_once.hpp"

#include <cstdint>
#include <exception>
#include <new>

#include "core/errors.hpp"
#include "strategies/out_of_time.hpp"

namespace parsim::strategies {

namespace {

enum class End : std::uint8_t { value, input_error, out_of_time, simulation_error, refused, bug };

std::string failed(End end, const std::string& what) {
  Packer packer;
  packer.put(end).put(what);
  return std::move(packer).text();
}

}  // namespace

std::string packed_end(const std::function<void(Packer&)>& work) {
  try {
    Packer packer;
    packer.put(End::value);
    work(packer);
    return std::move(packer).text();
  } catch (const InputError& error) {
    Packer packer;
    packer.put(End::input_error).put(error.where).put(error.found).put(error.accepted);
    return std::move(packer).text();
  } catch (const OutOfTime& error) {
    return failed(End::out_of_time, error.what());
  } catch (const RefusedByMachine& error) {
    return failed(End::refused, error.what());
  } catch (const SimulationError& error) {
    return failed(End::simulation_error, error.what());
  } catch (const std::bad_alloc&) {
    return failed(End::refused, "out of memory");
  } catch (const std::exception& error) {
    return failed(End::bug, error.what());
  }
}

Unpacker value_of_end(const std::string& text) {
  Unpacker unpacker(text);
  const End end = unpacker.get<End>();
  if (end == End::value) return unpacker;
  const auto what = unpacker.get<std::string>();
  if (end == End::input_error) {
    const auto found = unpacker.get<std::string>();
    throw InputError(what, found, unpacker.get<std::string>());
  }
  if (end == End::out_of_time) throw OutOfTime();
  if (end == End::refused) throw RefusedByMachine(what);
  if (end == End::simulation_error) throw SimulationError(what);
  throw BrokenInvariant(what);
}

}  // namespace parsim::strategies
