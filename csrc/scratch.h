// Memory for the work of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

namespace adasparse {
namespace ADASPARSE_ISA {

// What a thread gives back, kept for its next call: fresh pages of the system take longer than most
// of what is done in them.
class KeptMemory {
 public:
  KeptMemory() = default;
  ~KeptMemory() {
    for (int i = 0; i < count_; ++i) release(blocks_[i].data);
  }
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  // At least `bytes`, aligned to a line of the cache; `bytes` becomes what it really is.
  void* take(size_t& bytes) {
    int best = -1;
    for (int i = 0; i < count_; ++i)
      if (blocks_[i].size >= bytes && (best < 0 || blocks_[i].size < blocks_[best].size)) best = i;
    if (best < 0 || blocks_[best].size / 4 > bytes) return ::operator new(bytes, kAlignment);
    const Block block = blocks_[best];
    blocks_[best] = blocks_[--count_];
    total_ -= block.size;
    bytes = block.size;
    return block.data;
  }
  void give(void* data, size_t bytes) {
    if (count_ == kMostBlocks || total_ + bytes > kMostBytes) return release(data);
    blocks_[count_++] = {data, bytes};
    total_ += bytes;
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  static constexpr int kMostBlocks = 16;
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kMostBytes = 0;  // so that use after the end is found
#else
  static constexpr size_t kMostBytes = size_t{8} << 20;
#endif
  struct Block {
    void* data;
    size_t size;
  };
  static void release(void* data) { ::operator delete(data, kAlignment); }

  Block blocks_[kMostBlocks];
  int count_ = 0;
  size_t total_ = 0;
};

inline KeptMemory& kept_memory() {
  static thread_local KeptMemory kept;
  return kept;
}

// Aligned memory, given back at the end of the scope by the thread that took it.
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
