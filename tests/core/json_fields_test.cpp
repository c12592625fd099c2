#include "core/json_fields.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "core/json_get.hpp"
#include "core/json_put.hpp"
#include "core/json_schema.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::json {

namespace {

enum class Colour : std::uint8_t { red, green, blue };
constexpr std::array<std::string_view, 3> spellings(Colour) { return {"red", "green", "blue"}; }

struct Wheel {
  std::int32_t spokes = 0;
  std::array<double, 2> size{};
  friend bool operator==(const Wheel&, const Wheel&) = default;
};
void fields(auto& visit, Of<Wheel> auto& wheel) {
  visit("spokes", wheel.spokes, Rule(Limits{3, 9}, "from hub to rim"));
  visit("size_m", wheel.size);
}

struct Cart {
  std::string name{};
  Colour colour = Colour::red;
  std::vector<Wheel> wheels{};
  double load = 1;
  friend bool operator==(const Cart&, const Cart&) = default;
};
void fields(auto& visit, Of<Cart> auto& cart) {
  visit.constant("format", "cart");
  visit("name", cart.name);
  visit("colour", cart.colour, Rule("of the box", "blue"));
  visit.optional("wheels", cart.wheels);
  visit.optional_or("load_kg", cart.load, 1.0, Limits{1});
}

/// What is only written.
struct Found {
  std::optional<double> price{};
  std::optional<Wheel> spare{};
};
void fields(auto& visit, Of<Found> auto& found) {
  visit("price", found.price);
  visit.together(found.spare);
}

}  // namespace

TEST_CASE("json fields: absent values are null, absent parts are left out") {
  const auto typed = [](const Found& found) {
    Writer out(Writer::Numbers::typed);
    put(out, found);
    return out.take();
  };
  CHECK(typed({}) == "{\n\"price\": null\n}\n");
  CHECK(typed({5.0, Wheel{3, {1, 1e30}}}) ==
        "{\n\"price\": 5.0,\n\"spokes\": 3,\n\"size_m\": [\n1.0,\n1e+30\n]\n}\n");
  std::string schema = schema_of_file<Found>("F");
  std::erase(schema, '\n');
  CHECK(schema.find("\"anyOf\": [{\"type\": \"number\", \"minimum\": 0}, {\"type\": \"null\"}]") !=
        std::string::npos);
  CHECK(schema.find("\"spokes\"") != std::string::npos);
  CHECK(schema.find("\"required\": [\"price\"]") != std::string::npos);
}

TEST_CASE("json fields: one list writes, reads and describes a file") {
  const Cart cart{"a", Colour::green, {{4, {0.5, 0.25}}}, 2.5};
  CHECK(text_of_file(Cart{"b"}) ==
        "{\n\"format\": \"cart\",\n\"name\": \"b\",\n\"colour\": \"red\"\n}\n");
  const std::string text = text_of_file(cart);
  CHECK(text ==
        "{\n\"format\": \"cart\",\n\"name\": \"a\",\n\"colour\": \"green\",\n\"wheels\": [\n"
        "{\"spokes\": 4, \"size_m\": [0.5, 0.25]}\n],\n\"load_kg\": 2.5\n}\n");
  const Document document(text, "cart.json");
  Cart read;
  get(document.root(), read);
  CHECK(read == cart);

  std::string schema = schema_of_file<Cart>("A cart");
  std::erase(schema, '\n');
  CHECK(schema ==
        "{\"title\": \"A cart\",\"type\": \"object\",\"properties\": {"
        "\"format\": {\"const\": \"cart\"},\"name\": {\"type\": \"string\"},"
        "\"colour\": {\"description\": \"of the box\", \"enum\": [\"red\", \"green\"]},"
        "\"wheels\": {\"type\": \"array\", \"items\": {\"type\": \"object\", \"properties\": {"
        "\"spokes\": {\"description\": \"from hub to rim\", \"type\": \"integer\", \"minimum\": 3, "
        "\"maximum\": 9}, \"size_m\": {\"type\": \"array\", \"items\": {\"type\": \"number\", "
        "\"minimum\": 0}, \"minItems\": 2, \"maxItems\": 2}}, "
        "\"required\": [\"spokes\", \"size_m\"], \"additionalProperties\": false}},"
        "\"load_kg\": {\"type\": \"number\", \"minimum\": 1}},"
        "\"required\": [\"format\",\"name\",\"colour\"],\"additionalProperties\": false}");
}

TEST_CASE("json fields: what a list forbids is refused where it stands") {
  const auto says = [](const std::string& text) {
    return testing::refusal_of([&] {
      const Document document(text, "f");
      Cart cart;
      get(document.root(), cart);
    });
  };
  const std::string start = R"({"format": "cart", "name": "a", "colour": )";
  CHECK(says(start + R"("blue"})") == "f:/colour: 'blue'; accepted: red, green");
  CHECK(says(start + R"("red", "wheels": [{"spokes": 2, "size_m": [1, 2]}]})") ==
        "f:/wheels/0/spokes: 2; accepted: a whole number from 3 to 9");
  CHECK(says(start + R"("red", "wheels": [{"spokes": 3, "size_m": [1]}]})") ==
        "f:/wheels/0/size_m: an array of 1 items; accepted: 2 items");
  CHECK(says(start + R"("red", "load_kg": 0.5})") ==
        "f:/load_kg: 0.5; accepted: a number of at least 1");
  CHECK(says(start + R"("red", "weels": []})") ==
        "f: unknown key 'weels'; accepted: format, name, colour, wheels, load_kg; did you mean "
        "'wheels'?");
  CHECK(says(R"({"format": "cart", "name": "a"})") == "f: key 'colour' is missing");
}

}  // namespace parsim::json
