// SPDX-License-Identifier: Apache-2.0
#include "worker/wire/socket_options.h"

#include <netinet/tcp.h>

namespace weir::wire {

void set_socket_options(boost::asio::ip::tcp::socket& socket, int send_buffer_bytes,
                        std::chrono::milliseconds dead_after) {
  using UserTimeout = boost::asio::detail::socket_option::integer<IPPROTO_TCP, TCP_USER_TIMEOUT>;
  boost::system::error_code ignored;
  socket.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  if (send_buffer_bytes > 0) {
    socket.set_option(boost::asio::socket_base::send_buffer_size(send_buffer_bytes), ignored);
  }
  socket.set_option(UserTimeout(static_cast<int>(dead_after.count())), ignored);
}

}  // namespace weir::wire
