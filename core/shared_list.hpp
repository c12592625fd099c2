// A list whose copies share its items until one is changed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace parsim {

/// Reads as a std::vector that is const. The layers of a plan often have the same devices, as many
/// as the cluster has: copies of a list take no memory of their own, and are equal at a glance.
///
/// Changes are of this list alone: those below, and edit().
template <class Item>
class SharedList {
 public:
  using Items = std::vector<Item>;
  using value_type = Item;
  using const_iterator = typename Items::const_iterator;
  using iterator = const_iterator;

  SharedList() = default;
  SharedList(Items items)  // NOLINT(google-explicit-constructor): a list is its items
      : items_(items.empty() ? nullptr : std::make_shared<Items>(std::move(items))) {}
  SharedList(std::initializer_list<Item> items) : SharedList(Items(items)) {}

  operator const Items&() const { return items(); }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] const Items& items() const {
    static const Items none;
    return items_ == nullptr ? none : *items_;
  }
  [[nodiscard]] const_iterator begin() const { return items().begin(); }
  [[nodiscard]] const_iterator end() const { return items().end(); }
  [[nodiscard]] std::size_t size() const { return items_ == nullptr ? 0 : items_->size(); }
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] const Item& operator[](std::size_t i) const { return (*items_)[i]; }
  [[nodiscard]] const Item& at(std::size_t i) const { return items().at(i); }
  [[nodiscard]] const Item& front() const { return items_->front(); }
  [[nodiscard]] const Item& back() const { return items_->back(); }

  /// Of lists that are one; null without items.
  [[nodiscard]] const void* identity() const { return items_.get(); }

  /// The items, no longer shared with any copy made before.
  [[nodiscard]] Items& edit() {
    if (items_ == nullptr) {
      items_ = std::make_shared<Items>();
    } else if (items_.use_count() > 1) {
      items_ = std::make_shared<Items>(*items_);
    }
    return *items_;
  }
  void clear() { items_ = nullptr; }
  void resize(std::size_t size) { edit().resize(size); }
  void push_back(Item item) { edit().push_back(item); }
  template <class... Values>
  void emplace_back(Values&&... values) {
    edit().emplace_back(std::forward<Values>(values)...);
  }
  void append(const Items& more) {
    Items& all = edit();
    all.insert(all.end(), more.begin(), more.end());
  }

  friend bool operator==(const SharedList& a, const SharedList& b) {
    return a.items_ == b.items_ || a.items() == b.items();
  }

 private:
  std::shared_ptr<Items> items_;  ///< null: no items
};

}  // namespace parsim
