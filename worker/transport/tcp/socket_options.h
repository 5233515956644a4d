// SPDX-License-Identifier: Apache-2.0
// Options of a data socket, the same at both ends.
#pragma once

#include <chrono>

#include <boost/asio/ip/tcp.hpp>

namespace weir::transport::tcp {

// TCP_NODELAY (without it a step takes 148 % longer), SO_SNDBUF (a larger one makes credits queue
// behind data), TCP_USER_TIMEOUT (unacknowledged data for so long: the peer is dead). An option
// that the kernel refuses is left as it is: none of them is needed for correct work.
void set_socket_options(boost::asio::ip::tcp::socket& socket, int send_buffer_bytes,
                        std::chrono::seconds dead_after);

}  // namespace weir::transport::tcp
