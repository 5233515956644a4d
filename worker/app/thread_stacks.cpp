// SPDX-License-Identifier: Apache-2.0
// Only in builds with CUDA. glibc takes the thread-local storage of all libraries out of a thread's
// stack; libcublasLt's is 94 kB, and civetweb (the server of /metrics) asks for stacks of 100 kB:
// its threads then cannot start ("Invalid argument"; glibc bug 11787). This definition stands in
// front of glibc's and adds what the storage takes, as Java and Rust do for their own threads.
#include <cstddef>
#include <dlfcn.h>
#include <pthread.h>

extern "C" int pthread_attr_setstacksize(pthread_attr_t* attributes, std::size_t size) noexcept {
  using Set = int (*)(pthread_attr_t*, std::size_t);
  using Least = std::size_t (*)(const pthread_attr_t*);
  static const auto set = reinterpret_cast<Set>(dlsym(RTLD_NEXT, "pthread_attr_setstacksize"));
  static const auto least = reinterpret_cast<Least>(dlsym(RTLD_DEFAULT, "__pthread_get_minstack"));
  return set(attributes, size + (least != nullptr ? least(attributes) : 0));
}
