// Memory for the work of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "pages.h"
#include "tuning.h"

namespace adasparse {
namespace ADASPARSE_ISA {

// Memory that a thread has released, kept for its next call: fresh pages of the system take longer
// than most of what is done in them.
class KeptMemory {
 public:
  KeptMemory() = default;
  ~KeptMemory() { clear(); }
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  // At least `bytes`, aligned to a cache line; `bytes` becomes the real size.
  void* take(size_t& bytes) {
    int best = -1;
    for (int i = 0; i < count_; ++i)
      if (blocks_[i].size >= bytes && (best < 0 || blocks_[i].size < blocks_[best].size)) best = i;
    if (best < 0 || blocks_[best].size / 4 > bytes) return allocate(bytes);
    const Block block = blocks_[best];
    blocks_[best] = blocks_[--count_];
    total_ -= block.size;
    bytes = block.size;
    return block.data;
  }
  void give(void* data, size_t bytes) {
    if (count_ == kKeptBlocks || total_ + bytes > kKeptBytes) return release(data);
    blocks_[count_++] = {data, bytes};
    total_ += bytes;
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Block {
    void* data;
    size_t size;
  };
  // Where memory is short, what is kept is released first.
  void* allocate(size_t bytes) {
    void* data = ::operator new(bytes, kAlignment, std::nothrow);
    if (!data) {
      clear();
      data = ::operator new(bytes, kAlignment);
    }
    ask_for_large_pages(data, bytes);
    return data;
  }
  static void release(void* data) { ::operator delete(data, kAlignment); }
  void clear() {
    while (count_ > 0) release(blocks_[--count_].data);
    total_ = 0;
  }

  Block blocks_[kKeptBlocks];
  int count_ = 0;
  size_t total_ = 0;
};

inline KeptMemory& kept_memory() {
  static thread_local KeptMemory kept;
  return kept;
}

// Aligned memory, released at the end of the scope by the thread that took it.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t size)
      : bytes_(sizeof(T) * static_cast<size_t>(size)),
        data_(static_cast<T*>(kept_memory().take(bytes_))) {}
  ~Scratch() { kept_memory().give(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* get() const { return data_; }

 private:
  size_t bytes_;
  T* data_;
};

}  // namespace ADASPARSE_ISA
}  // namespace adasparse
