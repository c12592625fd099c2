// Lists share their items until one is changed.
#include "core/shared_list.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace parsim::testing {
namespace {

TEST_CASE("shared list: copies have the same items, and changes are of one alone") {
  const std::vector<int> items{1, 2, 3};
  SharedList<int> first = items;
  const SharedList<int> second = first;
  CHECK(&first.items() == &second.items());
  CHECK(first == second);
  CHECK(first == SharedList<int>{1, 2, 3});
  first.push_back(4);
  CHECK(second.items() == items);
  CHECK(first.items() == std::vector<int>{1, 2, 3, 4});
  CHECK_FALSE(first == second);
  SharedList<int> third = second;
  third.edit()[0] = 7;
  third.append(items);
  CHECK(second.items() == items);
  CHECK(third.items() == std::vector<int>{7, 2, 3, 1, 2, 3});
  third.resize(1);
  third.emplace_back(5);
  CHECK(third.items() == std::vector<int>{7, 5});
}

TEST_CASE("shared list: without items it is empty, however it came about") {
  SharedList<int> list{1};
  CHECK(list.front() == 1);
  CHECK(list.back() == 1);
  const SharedList<int> copy = list;
  list.clear();
  CHECK(list.empty());
  CHECK(list == SharedList<int>());
  CHECK(list == SharedList<int>(std::vector<int>()));
  CHECK(list.begin() == list.end());
  CHECK(copy.size() == 1);
}

}  // namespace
}  // namespace parsim::testing
