#include "tests/support/kineto_writer.hpp"

namespace parsim::testing {

std::int64_t KinetoWriter::op(const std::string& name, double start, double length,
                              const WrittenShapes& shapes, std::int64_t sequence, int thread) {
  Json arguments = {{"External id", next_}};
  if (sequence >= 0) arguments["Sequence number"] = sequence;
  if (!shapes.dims.empty()) {
    arguments["Input Dims"] = shapes.dims;
    arguments["Input type"] = std::vector<std::string>(shapes.dims.size(), shapes.type);
    if (!shapes.values.empty()) arguments["Concrete Inputs"] = shapes.values;
  }
  events.push_back({{"ph", "X"},
                    {"cat", "cpu_op"},
                    {"name", name},
                    {"pid", 1},
                    {"tid", thread},
                    {"ts", start},
                    {"dur", length},
                    {"args", arguments}});
  threads_[next_] = thread;
  return next_++;
}

void KinetoWriter::annotation(const std::string& name, double start, double length) {
  events.push_back({{"ph", "X"},
                    {"cat", "user_annotation"},
                    {"name", name},
                    {"pid", 1},
                    {"tid", 1},
                    {"ts", start},
                    {"dur", length},
                    {"args", {{"External id", next_++}}}});
}

void KinetoWriter::module(const std::string& name, double start, double length, int thread) {
  for (const std::string& text :
       {"nn.Module: " + name, std::string("nn/functional.py(1): forward")}) {
    events.push_back({{"ph", "X"},
                      {"cat", "python_function"},
                      {"name", text},
                      {"pid", 1},
                      {"tid", thread},
                      {"ts", start},
                      {"dur", length},
                      {"args", {{"Python id", next_++}}}});
  }
}

void KinetoWriter::kernel(const std::string& name, double start, double length,
                          std::int64_t external, double launched, int stream,
                          const std::string& category) {
  const std::int64_t correlation = 1'000'000 + next_++;
  const auto thread = threads_.find(external);
  events.push_back({{"ph", "X"},
                    {"cat", "cuda_runtime"},
                    {"name", category == "kernel" ? "cudaLaunchKernel" : "cudaMemcpyAsync"},
                    {"pid", 1},
                    {"tid", thread == threads_.end() ? 1 : thread->second},
                    {"ts", launched},
                    {"dur", 0.5},
                    {"args", {{"External id", external}, {"correlation", correlation}}}});
  events.push_back({{"ph", "X"},
                    {"cat", category},
                    {"name", name},
                    {"pid", 0},
                    {"tid", stream},
                    {"ts", start},
                    {"dur", length},
                    {"args",
                     {{"External id", external},
                      {"device", 0},
                      {"stream", stream},
                      {"correlation", correlation}}}});
}

std::string KinetoWriter::text() const {
  Json all = head;
  std::string lines;
  for (const Json& event : events) lines += (lines.empty() ? "\n" : ",\n") + event.dump();
  std::string before = all.dump();
  before.back() = before.size() > 2 ? ',' : ' ';
  return before + "\n\"traceEvents\":[" + lines + "\n]}\n";
}

namespace {

/// Operators of one step that begins at `host`, kernels at `gpu`.
class MlpStep {
 public:
  MlpStep(KinetoWriter& trace, double host, double gpu, std::int64_t sequence)
      : trace_(trace), host_(host), gpu_(gpu), sequence_(sequence) {}

  void dense(int layer, std::int64_t inputs, std::int64_t outputs, double at, double length) {
    trace_.module("Linear_" + std::to_string(layer / 2), host_, 9);
    // The view of the weights comes first and takes a sequence number of its own.
    trace_.op("aten::linear", host_, 8, {{{64, inputs}, {outputs, inputs}, {outputs}}, {}},
              sequence_);
    trace_.op("aten::t", host_ + 1, 1, {{{outputs, inputs}}, {}}, sequence_++);
    const std::int64_t addmm = trace_.op(
        "aten::addmm", host_ + 3, 4, {{{outputs}, {64, inputs}, {inputs, outputs}}, {}}, sequence_);
    numbers_[layer] = sequence_++;
    run("sgemm_128x64_tn", at, length, addmm);
  }
  void relu(int layer, double at) {
    trace_.module("ReLU_0", host_, 9);
    const std::int64_t op = trace_.op("aten::relu", host_, 8, {{{64, 1024}}, {}}, sequence_);
    numbers_[layer] = sequence_++;
    run("vectorized_elementwise_kernel", at, 3, op);
  }
  void loss(double at) {
    trace_.module("CrossEntropyLoss_0", host_, 9);
    trace_.op("aten::cross_entropy_loss", host_, 8, {{{64, 10}, {64}}, {}}, sequence_);
    const std::int64_t softmax =
        trace_.op("aten::_log_softmax", host_ + 1, 2, {{{64, 10}}, {}}, sequence_++);
    const std::int64_t nll =
        trace_.op("aten::nll_loss_forward", host_ + 4, 2, {{{64, 10}, {64}}, {}}, sequence_++);
    trace_.kernel("softmax_warp_forward", gpu_ + at, 3, softmax, host_ + 2);
    run("nll_loss_forward_reduce_cuda_kernel_2d", at + 3, 2, nll);
  }
  void loss_backward(double at) {
    node("NllLossBackward0", sequence_ - 1, "nll_loss_backward_reduce_cuda_kernel_2d", at, 2);
    node("LogSoftmaxBackward0", sequence_ - 2, "softmax_warp_backward", at + 2, 3);
  }
  void relu_backward(int layer, double at) {
    node("ReluBackward0", numbers_[layer], "vectorized_elementwise_kernel", at, 4);
  }
  /// `data`, `weights`, `bias`: lengths, 0 for what is not computed.
  void dense_backward(int layer, std::int64_t inputs, std::int64_t outputs, double at, double data,
                      double weights, double bias) {
    trace_.op("autograd::engine::evaluate_function: AddmmBackward0", host_, 8, {}, numbers_[layer],
              2);
    if (data > 0) {
      const std::int64_t mm =
          trace_.op("aten::mm", host_ + 1, 2, {{{64, outputs}, {outputs, inputs}}, {}}, -1, 2);
      trace_.kernel("sgemm_128x64_nn", gpu_ + at, data, mm, host_ + 2);
    }
    const std::int64_t mm =
        trace_.op("aten::mm", host_ + 3, 2, {{{outputs, 64}, {64, inputs}}, {}}, -1, 2);
    trace_.kernel("sgemm_128x64_nt", gpu_ + at + data, weights, mm, host_ + 4);
    if (bias > 0) {
      const std::int64_t sum = trace_.op("aten::sum", host_ + 6, 1, {{{64, outputs}}, {}}, -1, 2);
      trace_.kernel("reduce_kernel", gpu_ + at + data + weights, bias, sum, host_ + 6.1);
    }
    host_ += 10;
  }
  void all_reduce(double at, double length) {
    const std::int64_t op = trace_.op("c10d::allreduce_", host_, 8, {}, -1, 2);
    run("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", at, length, op,
        20);
  }
  void update(double at, double length) {
    trace_.annotation("Optimizer.step#SGD.step", host_, 8);
    const std::int64_t op = trace_.op("aten::_foreach_add_", host_ + 1, 4);
    run("multi_tensor_apply_kernel", at, length, op);
  }
  void copy(double at, double length) {
    const std::int64_t op = trace_.op("aten::copy_of_batch", host_, 8);
    trace_.kernel("Memcpy HtoD (Pinned -> Device)", gpu_ + at, length, op + 1'000'000, host_ + 9, 9,
                  "gpu_memcpy");
    host_ += 10;
  }

  [[nodiscard]] std::int64_t sequence() const { return sequence_; }

 private:
  void run(const std::string& name, double at, double length, std::int64_t op, int stream = 7) {
    trace_.kernel(name, gpu_ + at, length, op, host_ + 5, stream);
    host_ += 10;
  }
  void node(const std::string& name, std::int64_t sequence, const std::string& kernel, double at,
            double length) {
    trace_.op("autograd::engine::evaluate_function: " + name, host_, 8, {}, sequence, 2);
    const std::int64_t op = trace_.op("aten::backward_of_it", host_ + 1, 6, {}, -1, 2);
    run(kernel, at, length, op);
  }

  KinetoWriter& trace_;
  double host_, gpu_;
  std::int64_t sequence_;
  std::int64_t numbers_[8] = {};
};

}  // namespace

KinetoWriter mlp_trace() {
  KinetoWriter trace;
  trace.head = {{"schemaVersion", 1},
                {"deviceProperties", {{{"id", 0}, {"name", "NVIDIA H100 80GB HBM3"}}}},
                {"distributedInfo", {{"backend", "nccl"}, {"rank", 1}, {"world_size", 2}}},
                {"record_shapes", 1},
                {"displayTimeUnit", "ms"},
                {"baseTimeNanoseconds", 1'790'857'026'000'000'000}};
  double at = 1000;
  std::int64_t sequence = 10;
  int number = 4;
  for (const double length : {300.0, 310.0, 320.0, 300.0}) {
    trace.annotation("ProfilerStep#" + std::to_string(number++), at, length);
    MlpStep step(trace, at, at + 50, sequence);  // the GPU begins 50 us later
    trace.module("MLP_0", at, 60);
    step.dense(0, 784, 1024, 0, 20);
    step.relu(1, 20);
    step.dense(2, 1024, 1024, 25, 30);
    step.relu(3, 55);
    step.dense(4, 1024, 10, 60, 10);
    step.loss(70);
    step.loss_backward(80);
    step.dense_backward(4, 1024, 10, 85, 8, 10, 2);
    step.relu_backward(3, 105);
    step.dense_backward(2, 1024, 1024, 109, 30, 35, 0);
    step.all_reduce(150, 93);
    step.relu_backward(1, 174);
    step.dense_backward(0, 784, 1024, 178, 0, 25, 0);
    step.update(243, 40);
    step.copy(283, 7);
    sequence = step.sequence();
    at += length;
  }
  return trace;
}

}  // namespace parsim::testing
