// SPDX-License-Identifier: Apache-2.0
#include "worker/base/name_lookup.h"

#include <chrono>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>
#include <net/if.h>

#include "tests/support/temp_dir.h"

namespace weir {
namespace name_lookup_test {

using namespace std::chrono_literals;

std::optional<Result<std::vector<std::string>>> answer_of(const std::string& host) {
  NameLookup lookup(host);
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (std::chrono::steady_clock::now() < end) {
    if (auto answer = lookup.poll()) return answer;
    std::this_thread::sleep_for(1ms);
  }
  return std::nullopt;
}

TEST(NameLookup, KnowsLocalhostAndAddresses) {
  const auto localhost = answer_of("localhost");
  ASSERT_TRUE(localhost && localhost->ok());
  EXPECT_TRUE((**localhost)[0] == "127.0.0.1" || (**localhost)[0] == "::1") << (**localhost)[0];
  const auto address = answer_of("10.1.2.3");
  ASSERT_TRUE(address && address->ok());
  EXPECT_EQ(**address, std::vector<std::string>{"10.1.2.3"});
}

TEST(NameLookup, SaysWhyThereIsNoAddress) {
  const auto answer = answer_of("does not exist.invalid");
  ASSERT_TRUE(answer && !answer->ok());
  EXPECT_EQ(answer->error().code, Code::kUnavailable);
  EXPECT_NE(answer->error().message, "");
}

// A network whose name server is there and never answers. False: not allowed to make one.
bool enter_silent_network(const std::string& resolv_conf) {
  if (unshare(CLONE_NEWNS | CLONE_NEWNET) != 0) return false;
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  if (mount(resolv_conf.c_str(), "/etc/resolv.conf", nullptr, MS_BIND, nullptr) != 0) return false;
  const int udp = socket(AF_INET, SOCK_DGRAM, 0);
  ifreq loopback{};
  loopback.ifr_name[0] = 'l';
  loopback.ifr_name[1] = 'o';
  loopback.ifr_flags = IFF_UP;
  if (ioctl(udp, SIOCSIFFLAGS, &loopback) != 0) return false;
  constexpr int kDns = 53;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kDns);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return bind(udp, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

TEST(NameLookup, IsGivenUpAtOnceWhenNoNameServerAnswers) {
  constexpr int kSkipped = 77, kWaited = 1;
  const test::TempDir dir;
  const std::string conf =
      dir.file("resolv.conf", "nameserver 127.0.0.1\noptions timeout:30 attempts:5\n");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!enter_silent_network(conf)) _exit(kSkipped);
    const auto begin = std::chrono::steady_clock::now();
    {
      NameLookup lookup("weir.example.com");
      std::this_thread::sleep_for(100ms);
      if (lookup.poll()) _exit(kSkipped);  // names come from elsewhere here
    }
    _exit(std::chrono::steady_clock::now() - begin < 20s ? 0 : kWaited);
  }

  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);

  if (WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "no network of its own could be made";
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace name_lookup_test
}  // namespace weir
