// CUDA graphs whose nodes know who captured them: see trace_graph_steps.cuh.
//
// usage: trace_graphs serve IN OUT    by lines of the pipe IN, answers go to OUT:
//                                     "capture"        makes every graph anew; the steps of each
//                                     "update"         brings another capture into "updated_later"
//                                     "replay N NAME"  N launches of a graph, by replay_site
//
// Graphs are destroyed once they are instantiated, but for "two_streams": their handles are given
// to later ones.

#include <barrier>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/trace_graph_steps.cuh"

extern "C" __attribute__((noinline)) void replay_site(cudaGraphExec_t exec, cudaStream_t stream) {
  check(cudaGraphLaunch(exec, stream), "launch of a graph");
  asm volatile("# replay_site");
}

namespace {

void do_nothing(void*) {}

cudaGraph_t capture(const Target& target, cudaStreamCaptureMode mode,
                    const std::function<void()>& launch) {
  check(cudaStreamBeginCapture(target.stream, mode), "begin of a capture");
  launch();
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(target.stream, &graph), "end of a capture");
  return graph;
}

class Program {
 public:
  Program() {
    for (Target* target : {&first_, &second_, &idle_}) {
      check(cudaStreamCreateWithFlags(&target->stream, cudaStreamNonBlocking), "stream");
      check(cudaMalloc(&target->from, kSteps * kStepBytes), "memory");
      check(cudaMalloc(&target->to, kSteps * kStepBytes), "memory");
    }
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "event");
    // Kernels are loaded on their first launch, which is no matter for a capture.
    for (const Site* sites : {kSites, kAlts}) {
      for (int step = 0; step < kSteps; ++step) sites[step](first_);
    }
    check(cudaDeviceSynchronize(), "warm-up");
  }

  std::string capture_all(std::istream&) {
    check(cudaDeviceSynchronize(), "synchronize");
    for (auto& [name, graph] : graphs_) check(cudaGraphExecDestroy(graph.exec), "destroy");
    graphs_.clear();
    keep("one_stream", make_steps(1), capture_one(kSites, make_steps(1)));
    capture_two_streams();
    capture_two_threads("two_threads", [](const Target&) {});
    keep("updated", make_steps(4), capture_one(kSites, make_steps(4)));
    update("updated", make_steps(4));
    build_by_hand();
    keep("updated_later", make_steps(6), capture_one(kSites, make_steps(6)));
    capture_at_once();
    capture_two_threads("with_bystander", bystander);
    capture_with_others();
    return answer();
  }

  std::string update_later(std::istream&) {
    update("updated_later", rotate_kernels(graphs_.at("updated_later").steps));
    return answer();
  }

  std::string replay(std::istream& line) {
    long count = 0;
    std::string name;
    line >> count >> name;
    const uint64_t begin_ns = read_mono_ns();
    for (long i = 0; i < count; ++i) replay_site(graphs_.at(name).exec, first_.stream);
    check(cudaDeviceSynchronize(), "replay");
    std::ostringstream answer;
    answer << "{\"begin_mono_ns\": " << begin_ns << ", \"end_mono_ns\": " << read_mono_ns() << "}";
    return answer.str();
  }

 private:
  struct Graph {
    cudaGraphExec_t exec = nullptr;
    Steps steps;
  };

  void keep(const std::string& name, const Steps& steps, cudaGraph_t graph, bool destroys = true) {
    Graph& kept = graphs_[name];
    kept.steps = steps;
    check(cudaGraphInstantiate(&kept.exec, graph, 0), "instantiate");
    count_handle(graph);
    if (destroys) check(cudaGraphDestroy(graph), "destroy");
  }

  void update(const std::string& name, const Steps& steps) {
    Graph& kept = graphs_.at(name);
    kept.steps = steps;
    cudaGraph_t graph = capture_one(kAlts, steps);
    cudaGraphExecUpdateResultInfo info = {};
    check(cudaGraphExecUpdate(kept.exec, graph, &info), "update");
    count_handle(graph);
    check(cudaGraphDestroy(graph), "destroy");
  }

  void count_handle(cudaGraph_t graph) {
    if (!handles_.insert(graph).second) ++handles_again_;
  }

  cudaGraph_t capture_one(const Site* sites, const Steps& steps) {
    return capture(first_, cudaStreamCaptureModeGlobal, [&] { call(sites, steps, first_); });
  }

  void capture_two_streams() {
    const Steps steps = make_steps(2);
    cudaGraph_t graph = capture(first_, cudaStreamCaptureModeGlobal, [&] {
      wait_for(first_, second_);
      for (size_t i = 0; i < steps.size(); ++i) kSites[steps[i]](i % 2 == 0 ? first_ : second_);
      wait_for(second_, first_);
    });
    keep("two_streams", steps, graph, false);
  }

  void wait_for(const Target& earlier, const Target& later) {
    check(cudaEventRecord(event_, earlier.stream), "event");
    check(cudaStreamWaitEvent(later.stream, event_, 0), "event");
  }

  // Another thread makes the middle third, as the one that runs a backward pass does; beside it,
  // work for a stream that is not captured.
  void capture_two_threads(const std::string& name, Site beside) {
    const Steps steps = make_steps(3);
    cudaGraph_t graph = capture(first_, cudaStreamCaptureModeRelaxed, [&] {
      const auto third = static_cast<long>(steps.size() / 3);
      call(kSites, Steps(steps.begin(), steps.begin() + third), first_);
      std::thread([&] {
        for (long i = third; i < 2 * third; ++i) {
          beside(idle_);
          kSites[steps[i]](first_);
        }
      }).join();
      call(kSites, Steps(steps.begin() + 2 * third, steps.end()), first_);
    });
    keep(name, steps, graph);
  }

  // Nodes that nobody captured, in a graph whose handle captured ones had before.
  void build_by_hand() {
    Steps steps = make_steps(5);
    std::erase_if(steps, [](int step) { return step >= kKernels; });
    cudaGraph_t graph = nullptr;
    check(cudaGraphCreate(&graph, 0), "graph");
    cudaGraphNode_t last = nullptr;
    void* arguments[] = {&first_.to};
    for (const int step : steps) {
      cudaKernelNodeParams node = {};
      node.func = kNodes[step];
      node.gridDim = node.blockDim = dim3(1);
      node.kernelParams = arguments;
      cudaGraphNode_t before = last;
      check(cudaGraphAddKernelNode(&last, graph, &before, before == nullptr ? 0 : 1, &node),
            "node");
    }
    keep("by_hand", steps, graph);
  }

  // By two threads in turns, each for a graph of its own.
  void capture_at_once() {
    const Steps steps[] = {make_steps(7), make_steps(8)};
    const Target* targets[] = {&first_, &second_};
    cudaGraph_t graphs[2] = {};
    std::barrier turn(2);
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        graphs[i] = capture(*targets[i], cudaStreamCaptureModeThreadLocal, [&] {
          for (const int step : steps[i]) {
            turn.arrive_and_wait();
            kSites[step](*targets[i]);
          }
          turn.arrive_and_wait();
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
    keep("at_once_1", steps[0], graphs[0]);
    keep("at_once_2", steps[1], graphs[1]);
  }

  // Between the steps, nodes that are neither kernel nor copy nor set.
  void capture_with_others() {
    const Steps steps = make_steps(9);
    cudaGraph_t graph = capture(first_, cudaStreamCaptureModeGlobal, [&] {
      for (size_t i = 0; i < steps.size(); ++i) {
        if (i % 6 == 1) check(cudaLaunchHostFunc(first_.stream, do_nothing, nullptr), "function");
        if (i % 6 == 4) {
          void* memory = nullptr;
          check(cudaMallocAsync(&memory, kStepBytes, first_.stream), "memory");
          check(cudaFreeAsync(memory, first_.stream), "memory");
        }
        kSites[steps[i]](first_);
      }
    });
    keep("with_others", steps, graph);
  }

  std::string answer() const {
    std::ostringstream answer;
    answer << "{\"handles_again\": " << handles_again_ << ", \"graphs\": {";
    for (const auto& [name, graph] : graphs_) {
      answer << (name == graphs_.begin()->first ? "" : ", ") << "\"" << name << "\": [";
      for (size_t i = 0; i < graph.steps.size(); ++i) answer << (i ? ", " : "") << graph.steps[i];
      answer << "]";
    }
    answer << "}}";
    return answer.str();
  }

  Target first_, second_, idle_;
  cudaEvent_t event_ = nullptr;
  std::map<std::string, Graph> graphs_;
  std::set<cudaGraph_t> handles_;
  int handles_again_ = 0;  // of graphs that had the handle of an earlier one
};

}  // namespace

int main(int count, char** words) {
  if (count != 4 || std::string(words[1]) != "serve") {
    std::fprintf(stderr, "trace_graphs: no such use\n");
    return 2;
  }
  Program program;
  return serve(words[2], words[3],
               {{"capture", [&](std::istream& line) { return program.capture_all(line); }},
                {"update", [&](std::istream& line) { return program.update_later(line); }},
                {"replay", [&](std::istream& line) { return program.replay(line); }}});
}
