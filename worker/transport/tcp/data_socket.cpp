// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/data_socket.h"

#include <array>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

#include <linux/socket.h>

namespace weir::transport::tcp {
namespace {

// Result of a system call; 0 if the call should be repeated later.
Result<std::size_t> outcome(ssize_t count) {
  if (count >= 0) return static_cast<std::size_t>(count);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return std::size_t{0};
  return Error{Code::kUnavailable, std::generic_category().message(errno)};
}

std::optional<tcp_info> info_of(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  return info;
}

}  // namespace

Result<std::size_t> DataSocket::read(std::span<std::byte> to, std::span<std::byte> more) {
  std::array<iovec, 2> parts{{{to.data(), to.size()}, {more.data(), more.size()}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = more.empty() ? 1 : 2;
  const ssize_t count = ::recvmsg(descriptor_, &message, MSG_DONTWAIT);
  if (count == 0) return Error{Code::kUnavailable, "connection closed"};
  return outcome(count);
}

Result<std::size_t> DataSocket::write(std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return outcome(::sendmsg(descriptor_, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

void DataSocket::set_send_buffer(int bytes) {
  constexpr int kUnsent = 128 * 1024;
  ::setsockopt(descriptor_, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  int given = 0;  // twice what was asked for, for the kernel's own records
  socklen_t size = sizeof given;
  if (::getsockopt(descriptor_, SOL_SOCKET, SO_SNDBUF, &given, &size) != 0) return;
  if (given / 2 >= bytes) return;
  const int unlocked = 0;
  ::setsockopt(descriptor_, SOL_SOCKET, SO_BUF_LOCK, &unlocked, sizeof unlocked);  // Linux 5.14
  ::setsockopt(descriptor_, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsent, sizeof kUnsent);
}

bool DataSocket::await_room(std::chrono::microseconds limit) const {
  pollfd one{.fd = descriptor_, .events = POLLOUT, .revents = 0};
  const timespec time{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(limit).count()};
  return ::ppoll(&one, 1, &time, nullptr) > 0;
}

std::size_t DataSocket::unread() const {
  int bytes = 0;
  return ::ioctl(descriptor_, FIONREAD, &bytes) == 0 && bytes > 0 ? static_cast<std::size_t>(bytes)
                                                                  : 0;
}

void DataSocket::set_receive_buffer(int bytes) {
  if (bytes > 0) ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  if (bytes > 0) return;
  int locked = 0;
  socklen_t size = sizeof locked;
  if (::getsockopt(descriptor_, SOL_SOCKET, SO_BUF_LOCK, &locked, &size) != 0) return;
  locked &= ~SOCK_RCVBUF_LOCK;
  ::setsockopt(descriptor_, SOL_SOCKET, SO_BUF_LOCK, &locked, sizeof locked);
}

int DataSocket::segment() const {
  const auto info = info_of(descriptor_);
  return info ? static_cast<int>(info->tcpi_snd_mss) : 0;
}

std::optional<std::chrono::nanoseconds> DataSocket::round_trip() const {
  const auto info = info_of(descriptor_);
  if (!info || info->tcpi_rtt == 0) return std::nullopt;
  return std::chrono::microseconds(info->tcpi_rtt);
}

void DataSocket::shut() {
  ::shutdown(descriptor_, SHUT_RDWR);
}

DataSocket::~DataSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace weir::transport::tcp
