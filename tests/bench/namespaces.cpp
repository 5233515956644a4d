// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/namespaces.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace weir::bench {
namespace {

constexpr int kEthernet = 14, kTcpIp = 52;  // bytes of headers of a packet
constexpr int kBurst = 3;  // packets; worker/transport/README.md "What limits a link"

bool sh(const std::string& command) {
  return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
}

}  // namespace

std::string Namespaces::rate(double bytes_per_second) const {
  const int frame = mtu_ + kEthernet;
  const double wire = static_cast<double>(frame) / (mtu_ - kTcpIp);
  const auto bits = static_cast<long long>(8 * bytes_per_second * wire);
  char numbers[128];
  std::snprintf(numbers, sizeof numbers, "rate %lld ceil %lld burst %d cburst %d quantum 15000",
                bits, bits, kBurst * frame, kBurst * frame);
  return numbers;
}

std::string Namespaces::name(int index) const {
  return "weir-sched-" + std::to_string(slot_) + "-" + std::to_string(index);
}
std::string Namespaces::address(int index) const {
  return "10.252." + std::to_string(slot_) + "." + std::to_string(index + 1);
}
std::string Namespaces::port(int index) const {
  return "weirs" + std::to_string(slot_) + "n" + std::to_string(index);
}
std::string Namespaces::bridge() const {
  return "weirsched" + std::to_string(slot_);
}

std::unique_ptr<Namespaces> Namespaces::make(int slot, int count, int mtu) {
  if (geteuid() != 0) {
    std::fprintf(stderr, "links limited by HTB need root\n");
    return nullptr;
  }
  std::unique_ptr<Namespaces> made(new Namespaces(slot, count, mtu));
  if (made->set_up()) return made;
  std::fprintf(stderr, "network namespaces cannot be set up: ip, tc, bridge, veth, HTB\n");
  return nullptr;
}

Namespaces::~Namespaces() {
  tear_down();
}

void Namespaces::tear_down() const {
  for (int i = 0; i < count_; ++i) {
    sh("ip link del " + port(i));  // at once; with its namespace it goes later
    sh("ip netns del " + name(i));
  }
  sh("ip link del " + bridge());
}

bool Namespaces::set_up() const {
  tear_down();
  // An address on the bridge, to read the workers' metrics.
  const std::string mtu = " mtu " + std::to_string(mtu_);
  bool good = sh("ip link add " + bridge() + mtu + " type bridge && ip addr add " + address(252) +
                 "/24 dev " + bridge() + " && ip link set " + bridge() + " up");
  for (int i = 0; i < count_ && good; ++i) {
    const std::string inside = "ip -n " + name(i) + " ";
    good = sh("ip netns add " + name(i) + " && ip link add " + port(i) +
              " type veth peer name eth0 netns " + name(i) + " && ip link set " + port(i) +
              " master " + bridge() + mtu + " up && " + inside + "addr add " + address(i) +
              "/24 dev eth0 && " + inside + "link set eth0" + mtu + " up && " + inside +
              "link set lo up && " +
              // TCP hands over up to 64 kB at once, which would pass HTB in one piece, whatever
              // ethtool says of offloads.
              inside + "link set dev eth0 gso_max_segs 1");
  }
  return good;
}

std::vector<test::Host> Namespaces::hosts() const {
  std::vector<test::Host> list;
  for (int i = 0; i < count_; ++i) {
    list.push_back({.prefix = {"ip", "netns", "exec", name(i)}, .address = address(i)});
  }
  return list;
}

bool Namespaces::limit_port(int index, double bytes_per_second) const {
  const std::string tc = "ip netns exec " + name(index) + " tc ";
  const std::string all = "class replace dev eth0 parent 1: classid 1:99 htb ";
  return sh(tc + all + rate(bytes_per_second)) ||
         (sh(tc + "qdisc replace dev eth0 root handle 1: htb default 99") &&
          sh(tc + all + rate(bytes_per_second)));
}

bool Namespaces::limit_pair(int from, int to, double bytes_per_second) const {
  const std::string tc = "ip netns exec " + name(from) + " tc ";
  const std::string id = "1:" + std::to_string(to + 1);
  const std::string change =
      tc + "class change dev eth0 parent 1: classid " + id + " htb " + rate(bytes_per_second);
  if (sh(change)) return true;
  sh(tc + "qdisc add dev eth0 root handle 1: htb default 99");  // fails where it is there
  return sh(tc + "class add dev eth0 parent 1: classid " + id + " htb " + rate(bytes_per_second)) &&
         sh(tc + "filter add dev eth0 parent 1: protocol ip u32 match ip dst " + address(to) +
            "/32 flowid " + id);
}

bool Namespaces::limit(const std::vector<double>& seconds, double bytes) const {
  bool good = true;
  for (int from = 0; from < count_; ++from) {
    const std::string tc = "ip netns exec " + name(from) + " tc ";
    sh(tc + "qdisc del dev eth0 root");
    good = good && sh(tc + "qdisc add dev eth0 root handle 1: htb default 99");
    for (const int to : {from - 1, from + 1}) {
      if (to < 0 || to >= count_) continue;
      const double time = seconds[static_cast<std::size_t>(std::min(from, to))];
      if (time <= 0) continue;
      const std::string id = "1:" + std::to_string(to + 1);
      good = good &&
             sh(tc + "class add dev eth0 parent 1: classid " + id + " htb " + rate(bytes / time)) &&
             sh(tc + "filter add dev eth0 parent 1: protocol ip u32 match ip dst " + address(to) +
                "/32 flowid " + id);
    }
  }
  return good;
}

}  // namespace weir::bench
