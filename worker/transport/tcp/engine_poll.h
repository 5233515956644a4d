// SPDX-License-Identifier: Apache-2.0
// Lets the engine thread wait for sockets, a deadline, a stop request or a wake() of another
// thread. Uses an epoll instance: a large message takes a dozen waits, and poll() would register
// with each socket in each of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <vector>

namespace weir::transport::tcp {

class EnginePoll {
 public:
  EnginePoll();
  ~EnginePoll();
  EnginePoll(const EnginePoll&) = delete;
  EnginePoll& operator=(const EnginePoll&) = delete;

  void add(int descriptor);  // call it before the first wait()

  // Returns when something may have happened; readable(i) and writable(i) then tell what. Engine
  // thread.
  void wait(std::chrono::steady_clock::time_point deadline, const std::stop_token& stop);
  bool readable(std::size_t i) const { return watched_[i].readable; }
  bool writable(std::size_t i) const { return watched_[i].writable; }
  void ask_writable(std::size_t i, bool wanted);
  void drop(std::size_t i);

  void wake() noexcept;  // any thread

 private:
  struct Watched {
    int descriptor = -1;
    bool wanted = false;  // notify when the socket is writable
    // Registered with the system; a withdrawal is delayed until it would cause a wake-up.
    bool asked = false;
    bool readable = false;
    bool writable = false;
  };

  int epoll_ = -1;
  int event_ = -1;
  std::vector<Watched> watched_;

  void ask(std::size_t i, bool writable);
  void note(std::size_t i, std::uint32_t events);
};

}  // namespace weir::transport::tcp
