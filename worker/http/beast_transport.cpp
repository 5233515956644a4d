// SPDX-License-Identifier: Apache-2.0
#include "worker/http/beast_transport.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>

#include "worker/base/name_lookup.h"
#include "worker/http/text.h"
#include "worker/http/tls.h"

namespace weir::http {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using std::chrono::steady_clock;
using tcp = net::ip::tcp;

constexpr std::size_t kMaxHeader = 64 * 1024;
constexpr std::size_t kMaxBody = 64 * 1024 * 1024;  // limit of send(); no caller expects more
constexpr std::size_t kMaxErrorBody = 64 * 1024;    // limit of stream(), see transport.h

// A connection that is driven on the calling thread, one operation at a time. An operation ends
// when it is done, when its limit passes or when stop is requested. In the last two cases the
// connection must not be used again.
class Connection {
 public:
  explicit Connection(std::stop_token stop)
      : socket_(io_), stop_(stop), on_stop_(std::move(stop), [this] {
          net::post(io_, [] {});  // wakes run(), which checks the token
        }) {}

  tcp::socket& socket() { return socket_; }

  template <class Start>
  error_code run(steady_clock::time_point limit, Start start) {
    std::optional<error_code> result;
    start([&result](error_code ec, auto&&...) { result = ec; });
    io_.restart();
    while (!result && !stop_.stop_requested() && steady_clock::now() < limit) {
      io_.run_one_until(limit);
    }
    if (result && !stop_.stop_requested()) return *result;
    // The handler refers to this frame. It is never called; it is destroyed with io_.
    timed_out_ = !stop_.stop_requested();
    return net::error::operation_aborted;
  }

  // Returns nothing if the limit passed or stop was requested.
  std::optional<Result<std::vector<std::string>>> addresses_of(const std::string& host,
                                                               steady_clock::time_point limit) {
    constexpr std::chrono::milliseconds kLongestPause{50};
    NameLookup lookup(host);
    for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, kLongestPause)) {
      if (auto found = lookup.poll()) return found;
      net::steady_timer timer(io_, pause);
      run(limit, [&](auto done) { timer.async_wait(done); });
      timed_out_ = steady_clock::now() >= limit;
      if (stop_.stop_requested() || timed_out_) return std::nullopt;
    }
  }

  Error failure(error_code ec, const std::string& peer, const char* doing) const {
    const std::string where = peer + ": " + doing + ": ";
    if (stop_.stop_requested()) return {Code::kCancelled, where + "stopped"};
    if (timed_out_ || ec == net::error::timed_out) return {Code::kTimeout, where + "no answer"};
    return {Code::kUnavailable, where + ec.message()};
  }

 private:
  net::io_context io_{1};
  tcp::socket socket_;
  std::stop_token stop_;
  bool timed_out_ = false;
  std::stop_callback<std::function<void()>> on_stop_;  // last member: destroyed before io_
};

// The differences between send() and stream().
struct Exchange {
  const Request& request;
  std::optional<Deadline> deadline;
  std::chrono::seconds answer_idle;
  const std::function<void(std::string_view)>* on_bytes = nullptr;  // null: the body is kept
};

class BeastTransport final : public Transport {
 public:
  BeastTransport(Options options, BaseUrl base)
      : options_(std::move(options)),
        base_(std::move(base)),
        peer_(base_.host + ":" + base_.port) {}

  Result<Response> send(const Request& request, Deadline deadline, std::stop_token stop) override {
    return perform({request, deadline, options_.request_idle}, std::move(stop));
  }

  Result<Response> stream(const Request& request, std::stop_token stop,
                          const std::function<void(std::string_view)>& on_bytes) override {
    return perform({request, std::nullopt, options_.stream_idle, &on_bytes}, std::move(stop));
  }

 private:
  static Deadline limit(const Exchange& exchange, std::chrono::seconds idle) {
    const Deadline silence = steady_clock::now() + idle;
    return exchange.deadline ? std::min(*exchange.deadline, silence) : silence;
  }

  Result<Response> perform(const Exchange& exchange, std::stop_token stop) const {
    WEIR_TRY(const std::string text, request_text(base_, exchange.request));
    Connection connection(std::move(stop));
    WEIR_OK(connect(connection, exchange));
    if (!base_.tls) return talk(connection, connection.socket(), text, exchange);

    WEIR_TRY(TlsContext made, make_client_context(options_));
    net::ssl::context context(made.release());
    net::ssl::stream<tcp::socket&> tls(connection.socket(), context);
    expect_peer(tls.native_handle(), options_.tls_name.empty() ? base_.host : options_.tls_name);
    const auto ec = connection.run(limit(exchange, options_.request_idle), [&tls](auto done) {
      tls.async_handshake(net::ssl::stream_base::client, done);
    });
    if (ec) {
      Error error = connection.failure(ec, peer_, "TLS handshake");
      const std::string why = refusal(tls.native_handle());
      if (error.code == Code::kUnavailable && !why.empty()) {
        error.message = peer_ + ": certificate not accepted: " + why;
      }
      return error;
    }
    return talk(connection, tls, text, exchange);
  }

  Status connect(Connection& connection, const Exchange& exchange) const {
    const Deadline until = limit(exchange, options_.request_idle);
    error_code ec;
    std::vector<tcp::endpoint> endpoints;
    const auto add = [&](const std::string& ip) {
      const auto address = net::ip::make_address(ip, ec);
      if (!ec) endpoints.emplace_back(address, static_cast<unsigned short>(std::stoi(base_.port)));
    };
    add(base_.host);
    if (ec) {
      const auto ips = connection.addresses_of(base_.host, until);
      if (!ips) return connection.failure(net::error::operation_aborted, peer_, "resolve");
      if (!*ips) return ips->error().with(peer_ + ": resolve");
      for (const std::string& ip : **ips) add(ip);
    }
    ec = connection.run(
        until, [&](auto done) { net::async_connect(connection.socket(), endpoints, done); });
    if (ec) return connection.failure(ec, peer_, "connect");
    error_code ignored;
    connection.socket().set_option(tcp::no_delay(true), ignored);
    return Unit{};
  }

  template <class Stream>
  Result<Response> talk(Connection& connection, Stream& stream, const std::string& text,
                        const Exchange& exchange) const {
    // A server may answer before it has read the whole request (413) and close. Then the answer
    // counts, not the failed write.
    const auto write_error = connection.run(limit(exchange, options_.request_idle), [&](auto done) {
      net::async_write(stream, net::buffer(text), done);
    });
    if (write_error == net::error::operation_aborted) {
      return connection.failure(write_error, peer_, "send request");
    }

    beast::flat_buffer buffer(kMaxHeader + 64 * 1024);
    beast::http::response_parser<beast::http::buffer_body> parser;
    parser.header_limit(kMaxHeader);
    // The limit is checked below; Boost 1.74 refuses every length with boost::none.
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());
    auto ec = connection.run(limit(exchange, exchange.answer_idle), [&](auto done) {
      beast::http::async_read_header(stream, buffer, parser, done);
    });
    if (ec) return connection.failure(write_error ? write_error : ec, peer_, "read answer");

    Response response;
    response.status = static_cast<int>(parser.get().result_int());
    for (const auto& field : parser.get()) {
      response.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    }
    const bool streaming = exchange.on_bytes != nullptr && response.status / 100 == 2;
    const std::size_t most = exchange.on_bytes != nullptr ? kMaxErrorBody : kMaxBody;
    std::array<char, 16 * 1024> chunk;
    while (!parser.is_done()) {
      parser.get().body().data = chunk.data();
      parser.get().body().size = chunk.size();
      ec = connection.run(limit(exchange, exchange.answer_idle), [&](auto done) {
        beast::http::async_read_some(stream, buffer, parser, done);
      });
      if (ec == beast::http::error::need_buffer) ec = {};
      if (ec) return connection.failure(ec, peer_, "read body");
      const std::string_view bytes(chunk.data(), chunk.size() - parser.get().body().size);
      if (bytes.empty()) continue;
      if (streaming) {
        (*exchange.on_bytes)(bytes);
        continue;
      }
      response.body.append(bytes.substr(0, most - response.body.size()));
      if (response.body.size() < most) continue;
      if (exchange.on_bytes != nullptr) break;  // the rest of an error page is not needed
      return Error{Code::kUnavailable, peer_ + ": answer above 64 MiB"};
    }
    return response;
  }

  const Options options_;
  const BaseUrl base_;
  const std::string peer_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_beast_transport(const Options& options) {
  WEIR_TRY(BaseUrl base, parse_base_url(options.base_url));
  if (base.tls) {
    if (options.ca_file.empty() && options.ca_pem.empty() && !options.insecure) {
      return invalid("URL \"" + shown_url(options.base_url) + "\": https needs a CA file");
    }
    auto readable = make_client_context(options);
    if (!readable) return readable.error();
  }
  return std::unique_ptr<Transport>(new BeastTransport(options, std::move(base)));
}

}  // namespace weir::http
