// SPDX-License-Identifier: Apache-2.0
// Runs independent parts of a computation on several threads. Each result belongs to the index of
// its part, so the total is the same for any number of threads.
#pragma once

#include <cstddef>
#include <functional>

namespace weir {

// Calls body(i) once for each i < count, on up to `threads` threads including the caller's, and
// returns when all calls have ended. The body must not throw. With one thread, the calls come in
// the order of i and no thread is started.
void for_each_index(std::size_t count, int threads, const std::function<void(std::size_t)>& body);

}  // namespace weir
