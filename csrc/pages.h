// Large pages for the memory of results.
#pragma once

#include <cstddef>

namespace adasparse {

// Asks the system for large pages behind fresh memory that is about to be written, if it is large
// and the system has them. Returns whether they were granted.
bool ask_for_large_pages(void* data, size_t bytes);

// The same, and divides their first use among threads. What the memory holds stays the same.
//
// A page that is used for the first time is cleared by the system, one fault at a time, and threads
// that do so side by side wait for each other: with pages of 4 KB, the outputs and gradients of
// long batches spend up to half of the backward's time in this way.
void use_large_pages(void* data, size_t bytes, int threads);

}  // namespace adasparse
