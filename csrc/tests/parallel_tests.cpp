// Tests of the division of work among threads, and of failures in them.
#include "parallel.h"

#include <atomic>
#include <new>
#include <stdexcept>
#include <string>

#include "attention/visible.h"
#include "attention_problem.h"

namespace kernel_tests {
namespace {

TEST(every_task_runs_once) {
  for (const int threads : {1, 2, 3, 8})
    for (const int64_t total : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> times(static_cast<size_t>(total));
      adasparse::parallel_with(
          total, threads, [] { return 0; },
          [&](int&, int64_t i) { ++times[static_cast<size_t>(i)]; });
      bool is_once = true;
      for (const auto& count : times) is_once &= count == 1;
      CHECK(is_once, "%d threads, %lld tasks", threads, static_cast<long long>(total));
    }
}

TEST(exceptions_of_tasks_reach_the_caller) {
  for (const int threads : {1, 2, 5})
    for (const bool in_make : {false, true}) {
      std::atomic<int> alive{0};
      struct Work {
        explicit Work(std::atomic<int>& count) : count(&count) { ++count; }
        Work(Work&& other) : count(other.count) { other.count = nullptr; }
        ~Work() {
          if (count) --*count;
        }
        std::atomic<int>* count;
      };
      std::string message;
      try {
        adasparse::parallel_with(
            100, threads,
            [&] {
              if (in_make) throw std::bad_alloc();
              return Work(alive);
            },
            [&](Work&, int64_t i) {
              if (i == 57) throw std::runtime_error("task 57");
            });
      } catch (const std::bad_alloc&) {
        message = "bad_alloc";
      } catch (const std::runtime_error& error) {
        message = error.what();
      }
      CHECK(message == (in_make ? "bad_alloc" : "task 57"), "%d threads: \"%s\"", threads,
            message.c_str());
      CHECK(alive == 0, "%d threads: work was not released", threads);
    }
}

// The header says for every query what the definition says for every pair.
TEST(ranges_of_visible_keys) {
  Random random(5);
  for (int number = 0; number < 400; ++number) {
    AttentionCase a;
    a.batch = a.heads = a.groups = 1;
    a.d = a.e = 1;
    a.q = 1 + random.below(12);
    a.k = random.below(12);
    a.is_causal = random.below(2);
    a.window_left = random.below(8) - 1;
    a.window_right = random.below(8) - 1;
    a.window_position = random.below(15) - 7;
    if (random.below(2)) a.key_lengths = {random.below(14)};
    const AttentionProblem problem(a);
    const AttentionInput in = problem.input(1);
    const int64_t length = adasparse::length_of(in, 0);
    adasparse::KeyRange before{0, 0};
    bool is_right = true;
    int64_t most = 0;
    for (int64_t i = 0; i < a.q; ++i) {
      const adasparse::KeyRange keys = adasparse::visible_keys(in, length, i);
      is_right &= 0 <= keys.first && keys.first <= keys.last && keys.last <= length;
      is_right &= before.first <= keys.first && before.last <= keys.last;
      before = keys;
      most = std::max(most, keys.size());
      for (int64_t j = 0; j < a.k; ++j) {
        const bool is_inside = keys.first <= j && j < keys.last;
        is_right &= is_inside == problem.sees(i, j);
        const adasparse::KeyRange queries = adasparse::seeing_queries(in, j, j + 1);
        is_right &= !is_inside || (queries.first <= i && i < queries.last);
      }
    }
    is_right &= most <= adasparse::most_visible_keys(in);
    CHECK(is_right, "%s", problem.text().c_str());
  }
}

}  // namespace
}  // namespace kernel_tests
