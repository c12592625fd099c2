// Inception-v3 (Szegedy et al. 2015) without its auxiliary head, as in torchvision, whose module
// names the layers carry.
#include "networks/build.hpp"
#include "networks/zoo.hpp"

namespace parsim::networks::zoo {

namespace {

/// One branch of a module under construction: every call appends to it.
class Branch {
 public:
  Branch(Network& net, std::string module, LayerId from)
      : net_(net), module_(std::move(module)), end_(from) {}

  Branch& conv(const std::string& name, std::int64_t filters, std::vector<Window> windows) {
    end_ = conv_norm_relu(net_, module_ + "." + name, end_,
                          {.filters = filters, .windows = std::move(windows)});
    return *this;
  }
  Branch& average(const std::string& name) {
    end_ = add_layer(net_, module_ + "." + name,
                     Pool{.kind = PoolKind::average, .windows = square(3, 1, 1)}, {end_});
    return *this;
  }
  Branch& max(const std::string& name) {
    end_ = max_pool(net_, module_ + "." + name, end_, square(3, 2));
    return *this;
  }
  [[nodiscard]] LayerId end() const { return end_; }

 private:
  Network& net_;
  std::string module_;
  LayerId end_;
};

LayerId concat(Network& net, const std::string& module, std::vector<LayerId> branches) {
  return add_layer(net, module + ".concat", Concat{.axis = 0}, std::move(branches));
}

/// A row or column of `kernel`, padded to keep the map's extents.
std::vector<Window> row(std::int64_t kernel) { return {window(1), window(kernel, 1, kernel / 2)}; }
std::vector<Window> column(std::int64_t kernel) {
  return {window(kernel, 1, kernel / 2), window(1)};
}

/// 1x1, 5x5, two 3x3, pooling: 35x35 maps.
LayerId module_a(Network& net, const std::string& name, LayerId from, std::int64_t pool_filters) {
  const auto branch = [&] { return Branch(net, name, from); };
  const LayerId one = branch().conv("branch1x1", 64, square(1)).end();
  const LayerId five =
      branch().conv("branch5x5_1", 48, square(1)).conv("branch5x5_2", 64, square(5, 1, 2)).end();
  const LayerId three = branch()
                            .conv("branch3x3dbl_1", 64, square(1))
                            .conv("branch3x3dbl_2", 96, square(3, 1, 1))
                            .conv("branch3x3dbl_3", 96, square(3, 1, 1))
                            .end();
  const LayerId pool =
      branch().average("branch_pool.pool").conv("branch_pool", pool_filters, square(1)).end();
  return concat(net, name, {one, five, three, pool});
}

/// 35x35 to 17x17.
LayerId module_b(Network& net, const std::string& name, LayerId from) {
  const auto branch = [&] { return Branch(net, name, from); };
  const LayerId three = branch().conv("branch3x3", 384, square(3, 2)).end();
  const LayerId twice = branch()
                            .conv("branch3x3dbl_1", 64, square(1))
                            .conv("branch3x3dbl_2", 96, square(3, 1, 1))
                            .conv("branch3x3dbl_3", 96, square(3, 2))
                            .end();
  return concat(net, name, {three, twice, branch().max("branch_pool").end()});
}

/// 7x7 split into rows and columns, `inner` channels wide: 17x17 maps.
LayerId module_c(Network& net, const std::string& name, LayerId from, std::int64_t inner) {
  const auto branch = [&] { return Branch(net, name, from); };
  const LayerId one = branch().conv("branch1x1", 192, square(1)).end();
  const LayerId seven = branch()
                            .conv("branch7x7_1", inner, square(1))
                            .conv("branch7x7_2", inner, row(7))
                            .conv("branch7x7_3", 192, column(7))
                            .end();
  const LayerId twice = branch()
                            .conv("branch7x7dbl_1", inner, square(1))
                            .conv("branch7x7dbl_2", inner, column(7))
                            .conv("branch7x7dbl_3", inner, row(7))
                            .conv("branch7x7dbl_4", inner, column(7))
                            .conv("branch7x7dbl_5", 192, row(7))
                            .end();
  const LayerId pool =
      branch().average("branch_pool.pool").conv("branch_pool", 192, square(1)).end();
  return concat(net, name, {one, seven, twice, pool});
}

/// 17x17 to 8x8.
LayerId module_d(Network& net, const std::string& name, LayerId from) {
  const auto branch = [&] { return Branch(net, name, from); };
  const LayerId three =
      branch().conv("branch3x3_1", 192, square(1)).conv("branch3x3_2", 320, square(3, 2)).end();
  const LayerId seven = branch()
                            .conv("branch7x7x3_1", 192, square(1))
                            .conv("branch7x7x3_2", 192, row(7))
                            .conv("branch7x7x3_3", 192, column(7))
                            .conv("branch7x7x3_4", 192, square(3, 2))
                            .end();
  return concat(net, name, {three, seven, branch().max("branch_pool").end()});
}

/// 3x3 split into a row and a column side by side: 8x8 maps.
LayerId module_e(Network& net, const std::string& name, LayerId from) {
  const auto branch = [&] { return Branch(net, name, from); };
  const LayerId one = branch().conv("branch1x1", 320, square(1)).end();
  const Branch three = branch().conv("branch3x3_1", 384, square(1));
  const LayerId three_row = Branch(three).conv("branch3x3_2a", 384, row(3)).end();
  const LayerId three_column = Branch(three).conv("branch3x3_2b", 384, column(3)).end();
  const Branch twice =
      branch().conv("branch3x3dbl_1", 448, square(1)).conv("branch3x3dbl_2", 384, square(3, 1, 1));
  const LayerId twice_row = Branch(twice).conv("branch3x3dbl_3a", 384, row(3)).end();
  const LayerId twice_column = Branch(twice).conv("branch3x3dbl_3b", 384, column(3)).end();
  const LayerId pool =
      branch().average("branch_pool.pool").conv("branch_pool", 192, square(1)).end();
  return concat(net, name, {one, three_row, three_column, twice_row, twice_column, pool});
}

}  // namespace

Network inception_v3() {
  Network net = start("inception_v3", image_shape(3, 299, 299));
  LayerId x{0};
  x = conv_norm_relu(net, "Conv2d_1a_3x3", x, {.filters = 32, .windows = square(3, 2)});
  x = conv_norm_relu(net, "Conv2d_2a_3x3", x, {.filters = 32, .windows = square(3)});
  x = conv_norm_relu(net, "Conv2d_2b_3x3", x, {.filters = 64, .windows = square(3, 1, 1)});
  x = max_pool(net, "maxpool1", x, square(3, 2));
  x = conv_norm_relu(net, "Conv2d_3b_1x1", x, {.filters = 80, .windows = square(1)});
  x = conv_norm_relu(net, "Conv2d_4a_3x3", x, {.filters = 192, .windows = square(3)});
  x = max_pool(net, "maxpool2", x, square(3, 2));
  x = module_a(net, "Mixed_5b", x, 32);
  x = module_a(net, "Mixed_5c", x, 64);
  x = module_a(net, "Mixed_5d", x, 64);
  x = module_b(net, "Mixed_6a", x);
  x = module_c(net, "Mixed_6b", x, 128);
  x = module_c(net, "Mixed_6c", x, 160);
  x = module_c(net, "Mixed_6d", x, 160);
  x = module_c(net, "Mixed_6e", x, 192);
  x = module_d(net, "Mixed_7a", x);
  x = module_e(net, "Mixed_7b", x);
  x = module_e(net, "Mixed_7c", x);
  x = global_average_pool(net, "avgpool", x);
  x = add_layer(net, "dropout", Dropout{.rate = 0.5}, {x});
  x = add_layer(net, "flatten", Flatten{}, {x});
  finish(net, x, 1000);
  return net;
}

}  // namespace parsim::networks::zoo
