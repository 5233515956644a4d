// SPDX-License-Identifier: Apache-2.0
// A network namespace per worker on one bridge; what a worker sends to a neighbour passes an HTB
// class of its own, so that the kernel limits the links. Root only. tests/bench/run removes what a
// killed program leaves behind.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/multiproc/workers.h"

namespace weir::bench {

class Namespaces {
 public:
  // slot: several sets at once have different ones. Null, and a line on standard error: not root,
  // or the kernel or its tools cannot do it. mtu: of the ports; each packet costs time of a
  // processor.
  static std::unique_ptr<Namespaces> make(int slot, int count, int mtu = 1500);
  ~Namespaces();
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;

  std::vector<test::Host> hosts() const;
  std::string outside() const { return address(252); }  // of this process
  // Seconds that `bytes` of payload take over link i (between i and i+1), either way; 0 = as fast
  // as it goes. False when the kernel refuses.
  bool limit(const std::vector<double>& seconds, double bytes) const;
  // What worker `from` sends to worker `to`, payload; again at any time: from then on. Without the
  // other limits.
  bool limit_pair(int from, int to, double bytes_per_second) const;
  // All that worker `index` sends, payload; again at any time: from then on. Without limit() above.
  bool limit_port(int index, double bytes_per_second) const;

 private:
  Namespaces(int slot, int count, int mtu) : slot_(slot), count_(count), mtu_(mtu) {}
  bool set_up() const;
  void tear_down() const;
  std::string name(int index) const;
  std::string address(int index) const;
  std::string port(int index) const;  // of the bridge
  std::string bridge() const;
  std::string rate(double bytes_per_second) const;  // parameters of an HTB class

  int slot_, count_, mtu_;
};

}  // namespace weir::bench
