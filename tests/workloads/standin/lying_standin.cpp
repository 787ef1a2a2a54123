// Stand-in for libgpuperf_injector.so of an attacker: it calls the notes of bpf/hook_notes.h with
// whatever may come to one's mind.

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <random>

#include "injector/note_points.h"

namespace {

using namespace gpuperf;

constexpr size_t kAreaBytes = 64 << 10;

class Liar {
 public:
  explicit Liar(uint32_t seed) : random_(seed) {
    // What is noted may end where nothing can be read.
    void* area = mmap(nullptr, kAreaBytes + 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    area_ = static_cast<std::byte*>(area);
    (void)mprotect(area_ + kAreaBytes, 4096, PROT_NONE);
  }

  void lie() {
    fill(0, 8192);
    const void* const place = choose_place();
    switch (random_() % 8) {
      case 0:
        return gpuperf_note_calls(static_cast<const gpuperf_noted_calls*>(place));
      case 1:
        return gpuperf_note_slow(static_cast<const gpuperf_noted_call*>(place));
      case 2:
        return gpuperf_note_launch(static_cast<const gpuperf_noted_call*>(place));
      case 3:
        return gpuperf_note_thread(static_cast<const gpuperf_noted_thread*>(place));
      case 4:
        return lie_of_launches();
      case 5:
      case 6:
        return lie_of_counts();
      default:
        return gpuperf_note_each(place);
    }
  }

 private:
  // Words that mean something somewhere, and some that mean nothing.
  uint64_t choose_word() {
    switch (random_() % 8) {
      case 0:
        return 0;
      case 1:
        return random_() % 10;
      case 2:
        return random_() % 70'000;
      case 3:
        return ~uint64_t{0};
      case 4:
        return 0xffff'8880'0000'0000ull + random_() % (1ull << 40);  // the kernel's
      case 5:
        return reinterpret_cast<uint64_t>(area_) + random_() % (kAreaBytes + 4096);
      case 6:
        return random_() << 32 | random_() % 300;
      default:
        return random_();
    }
  }

  void fill(size_t from, size_t size_bytes) {
    for (size_t at = from; at < from + size_bytes; at += sizeof(uint64_t)) {
      const uint64_t word = choose_word();
      std::memcpy(area_ + at, &word, sizeof(word));
    }
  }

  const void* choose_place() {
    switch (random_() % 4) {
      case 0:
        return reinterpret_cast<const void*>(choose_word());
      case 1:
        return area_ + kAreaBytes - random_() % 256;
      default:
        return area_;
    }
  }

  // Near enough to the truth to be read to its end.
  void lie_of_launches() {
    auto* const launches = reinterpret_cast<gpuperf_noted_launches*>(area_);
    launches->count = static_cast<uint32_t>(random_() % 80);
    launches->site_count = static_cast<uint32_t>(random_() % 40);
    for (gpuperf_launch_site& site : launches->sites) {
      auto* const place = reinterpret_cast<gpuperf_noted_stack*>(area_ + 16'384);
      place->frame_count = static_cast<uint16_t>(random_() % 300);
      place->python_count = static_cast<uint16_t>(random_() % 120);
      place->end = static_cast<uint8_t>(random_() % 8);
      place->stack_id = random_();
      place->frames_address = choose_word();
      place->python_address =
          random_() % 4 == 0 ? choose_word() : reinterpret_cast<uint64_t>(place + 1);
      site.id = random_();
      site.stack_address = random_() % 4 == 0 ? choose_word() : reinterpret_cast<uint64_t>(place);
    }
    for (gpuperf_kept_launch& launch : launches->launches) {
      launch.entry = static_cast<uint16_t>(random_() % 10);
      launch.site = static_cast<uint16_t>(random_() % 50);
    }
    if (random_() % 2 == 0) {
      // Of a thread that was noted, so that the launches count.
      gpuperf_noted_thread thread{.hooked_address = reinterpret_cast<uint64_t>(area_),
                                  .process_address = choose_word(),
                                  .entry = static_cast<uint32_t>(random_() % 10),
                                  .pad = 0};
      gpuperf_note_thread(&thread);
      launches->thread_address = thread.hooked_address;
    }
    gpuperf_note_launches(launches);
  }

  // A process that says of its threads and entries what it likes, most of it readable.
  void lie_of_counts() {
    auto* const process = reinterpret_cast<gpuperf_hooked_process*>(area_);
    auto* const threads = reinterpret_cast<uint64_t*>(area_ + 8'192);
    auto* const thread = reinterpret_cast<gpuperf_hooked_thread*>(area_ + 40'960);
    auto* const thread_counts = reinterpret_cast<gpuperf_thread_counts*>(area_ + 41'984);
    auto* const counts = reinterpret_cast<gpuperf_noted_counts*>(area_ + 44'032);
    fill(44'032, sizeof(*counts));
    for (size_t i = 0; i < GPUPERF_HOOKED_THREADS; ++i) {
      threads[i] = random_() % 4'000 == 0 ? choose_word() : reinterpret_cast<uint64_t>(thread);
    }
    thread->counts_address =
        random_() % 16 == 0 ? choose_word() : reinterpret_cast<uint64_t>(thread_counts);
    for (__u64& entry : thread_counts->entries) {
      entry = random_() % 16 == 0 ? choose_word() : reinterpret_cast<uint64_t>(counts);
    }
    for (__u64& place : process->counts) {
      place = random_() % 16 == 0 ? choose_word() : reinterpret_cast<uint64_t>(counts);
    }
    for (__u64& bits : process->is_called) bits = ~uint64_t{0};
    process->threads = reinterpret_cast<uint64_t>(threads);
    process->thread_count = random_() % 2 == 0 ? ~0u : GPUPERF_HOOKED_THREADS;
    process->noted = random_() % 4;
    for (__u64& sequence : counts->sequence) sequence = random_() % 4;
    const gpuperf_noted_thread noted{.hooked_address = reinterpret_cast<uint64_t>(thread),
                                     .process_address = reinterpret_cast<uint64_t>(process),
                                     .entry = static_cast<uint32_t>(random_() % 10),
                                     .pad = 0};
    gpuperf_note_thread(&noted);
    const gpuperf_noted_calls calls{.process_address = reinterpret_cast<uint64_t>(process),
                                    .sequence = random_() % 4,
                                    .entry = static_cast<uint32_t>(random_() % 10),
                                    .pad = 0};
    gpuperf_note_calls(&calls);
  }

  std::mt19937_64 random_;
  std::byte* area_;
};

}  // namespace

extern "C" void tell_lies(uint32_t seed, int count) {
  static Liar liar(seed);
  for (int i = 0; i < count; ++i) liar.lie();
}
