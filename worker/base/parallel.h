// SPDX-License-Identifier: Apache-2.0
// Work that falls into parts which do not know of each other, on several threads. What a part
// answers belongs to its index, so the whole is the same for any number of threads.
#pragma once

#include <cstddef>
#include <functional>

namespace weir {

// body(i) once for each i below count, from up to `threads` threads, this one among them; returns
// when all have ended. The body must not throw. One thread: in the order of i, and no other starts.
void for_each_index(std::size_t count, int threads, const std::function<void(std::size_t)>& body);

}  // namespace weir
