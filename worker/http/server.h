// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 server on Boost.Beast, with or without TLS: control API, health, scripted servers of
// metrics, tests. Handlers run on the io threads and must not block; they may answer later from any
// thread, so a long poll holds a socket and no thread. HEAD is asked of the handler as GET; its
// answer goes out without the body.
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
  // The client has shown who it is: when there are too many connections, others go. Any thread.
  std::function<void()> proven;
};

// Answers one request; call once, from any thread. Answering after the client has gone is allowed
// and does nothing.
using Responder = std::function<void(Response)>;
using Handler = std::function<void(IncomingRequest, Responder)>;

struct TlsIdentity {
  std::string certificate_pem, key_pem;  // chain and key of the server; empty: plain http
};

struct ServerOptions {
  std::string address;  // "" = all, IPv4 and IPv6
  int port = 0;         // 0 = any free one
  TlsIdentity tls;
  int threads = 2;
  // One more closes the connection that was longest without a good request, of those that have not
  // proven who they are; of one address at most so many are of that kind.
  std::size_t max_connections = 256;
  std::size_t max_strangers_of_one_address = 64;
  std::size_t max_header_bytes = 8 * 1024;
  std::size_t max_body_bytes = 2 * 1024 * 1024;  // by Content-Length: 413; chunked bodies: 411
  std::chrono::seconds header_time{10};          // to send the header
  std::chrono::seconds idle_time{75};            // between requests; above the long poll's 50 s
  std::string name = "http";                     // of the threads, for logs
};

class Server {
 public:
  virtual ~Server() = default;  // stops, joins
  virtual int port() const = 0;
  virtual void set_max_connections(std::size_t limit) = 0;
  virtual void set_tls(const TlsIdentity& tls) = 0;  // for new connections
  virtual void stop() = 0;  // no new connections, open ones are closed; idempotent
};

// kUnavailable "port 8443: address already in use".
Result<std::unique_ptr<Server>> make_server(const ServerOptions& options, Handler handler);

// Value of a query parameter, percent-decoded; empty when absent. path_of: the part before '?'.
std::string query_value(const std::string& path, const std::string& name);
std::string path_of(const std::string& path);
std::string percent_encoded(const std::string& text);  // everything but unreserved characters

}  // namespace weir::http
