// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 server on Boost.Beast, with or without TLS, for the control API, health, metrics and
// tests. Handlers run on the io threads and must not block. They may answer later from any thread,
// so a long poll occupies a socket but no thread. The handler gets HEAD as GET; the answer is sent
// without its body.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "worker/base/result.h"
#include "worker/http/transport.h"

namespace weir::http {

struct IncomingRequest {
  Request request;             // path with query, as sent
  std::string remote_address;  // "10.0.0.7:40112"
  // The client has proven its identity, so its connection is not dropped if there are too many. Any
  // thread.
  std::function<void()> proven;
};

// Answers one request. Call it once, from any thread. It does nothing if the client has gone.
using Responder = std::function<void(Response)>;
using Handler = std::function<void(IncomingRequest, Responder)>;

struct TlsIdentity {
  std::string certificate_pem, key_pem;  // chain and key of the server; empty: plain http
};

struct ServerOptions {
  std::string address;  // "" = all addresses, IPv4 and IPv6
  int port = 0;         // 0 = any free port
  TlsIdentity tls;
  int threads = 2;
  // Above this, a new connection replaces an unproven one: the one whose last good request is
  // longest ago. The second limit applies to unproven connections of one address.
  std::size_t max_connections = 256;
  std::size_t max_strangers_of_one_address = 64;
  std::size_t max_header_bytes = 8 * 1024;
  std::size_t max_body_bytes = 2 * 1024 * 1024;  // by Content-Length: 413; chunked bodies: 411
  std::chrono::seconds header_time{10};          // time to send the header
  std::chrono::seconds idle_time{75};            // between requests; above the long poll's 50 s
  std::string name = "http";                     // name of the threads in logs
};

class Server {
 public:
  virtual ~Server() = default;  // stops and joins its threads
  virtual int port() const = 0;
  virtual void set_max_connections(std::size_t limit) = 0;
  virtual void set_tls(const TlsIdentity& tls) = 0;  // for new connections
  // Accepts no new connections and closes the open ones; may be called again.
  virtual void stop() = 0;
};

// The error is kUnavailable, e.g. "port 8443: address already in use".
Result<std::unique_ptr<Server>> make_server(const ServerOptions& options, Handler handler);

// query_value: the percent-decoded value of a query parameter; "" if absent. path_of: the part
// before '?'.
std::string query_value(const std::string& path, const std::string& name);
std::string path_of(const std::string& path);
std::string percent_encoded(const std::string& text);  // encodes all but unreserved characters

}  // namespace weir::http
