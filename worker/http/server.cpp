// SPDX-License-Identifier: Apache-2.0
// A connection is a Session: it reads a request, calls the handler, writes the answer, and starts
// again. Its callbacks run on one strand; it lives as long as a callback is pending. Answers come
// from any thread through the Gate, which stop() closes before the io_context is destroyed.
// Above 400 lines, because sessions and server share types of Boost that must not be in a header.
#include "worker/http/server.h"

#include <array>
#include <atomic>
#include <mutex>
#include <netinet/tcp.h>
#include <optional>
#include <pthread.h>
#include <thread>
#include <type_traits>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>

#include "worker/base/check.h"
#include "worker/base/log.h"
#include "worker/http/guests.h"
#include "worker/http/text.h"
#include "worker/http/tls.h"

namespace weir::http {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using tcp = net::ip::tcp;
using namespace std::chrono_literals;

constexpr auto kBodyTime = 30s;   // enough for 2 MiB at 70 kB/s
constexpr auto kWriteTime = 30s;  // the same for an answer
constexpr auto kLingerTime = 2s;  // for the client to read the answer to an incomplete request
constexpr auto kPeerCheck = 2s;   // interval of checks whether the client of a long poll has gone
constexpr auto kAcceptPause = 100ms;  // after a failed accept, e.g. if no descriptors are left

struct Gate {
  std::mutex mutex;  // guards running; held while an answer is posted
  bool running = true;
};

// State that sessions share with their server. Destroyed before the owner of the io_context.
struct Shared {
  ServerOptions options;
  Handler handler;
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  Guests guests;
};

class SessionBase : public Guest {
 public:
  virtual void post_answer(Response response) = 0;
  virtual void set_proven() = 0;  // any thread
};

// The one answer to one request. If it is dropped without an answer, the client gets status 500
// instead of hanging.
class Answer {
 public:
  Answer(std::weak_ptr<SessionBase> session, std::shared_ptr<Gate> gate)
      : session_(std::move(session)), gate_(std::move(gate)) {}
  ~Answer() { send({500, {}, "the handler gave no answer\n"}); }
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  void send(Response response) {
    if (used_.exchange(true)) return;
    const std::lock_guard lock(gate_->mutex);
    if (!gate_->running) return;
    if (const auto session = session_.lock()) session->post_answer(std::move(response));
  }
  void proven() {
    const std::lock_guard lock(gate_->mutex);
    if (!gate_->running) return;
    if (const auto session = session_.lock()) session->set_proven();
  }

 private:
  std::weak_ptr<SessionBase> session_;
  std::shared_ptr<Gate> gate_;
  std::atomic<bool> used_{false};
};

std::optional<Method> method_of(beast::http::verb verb) {
  switch (verb) {
    case beast::http::verb::get:
    case beast::http::verb::head:
      return Method::kGet;
    case beast::http::verb::post:
      return Method::kPost;
    case beast::http::verb::put:
      return Method::kPut;
    case beast::http::verb::patch:
      return Method::kPatch;
    case beast::http::verb::delete_:
      return Method::kDelete;
    default:
      return std::nullopt;
  }
}

using TlsStream = net::ssl::stream<tcp::socket>;

template <class Stream>
class Session final : public SessionBase, public std::enable_shared_from_this<Session<Stream>> {
 public:
  template <class... Tls>
  Session(tcp::socket socket, Shared& shared, std::shared_ptr<net::ssl::context> context,
          Tls&... tls)
      : shared_(shared),
        context_(std::move(context)),
        stream_(std::move(socket), tls...),
        timer_(stream_.get_executor()) {}
  ~Session() override { shared_.guests.gone(guest_); }

  // Called before start(), in the order in which the connections came.
  void enter() {
    error_code ec;
    const auto remote = socket().remote_endpoint(ec);
    const std::string address = ec ? "gone" : remote.address().to_string();
    remote_ = address + ":" + std::to_string(remote.port());
    guest_ = shared_.guests.add(address, this->shared_from_this());
  }

  void start() {
    error_code ec;
    socket().set_option(tcp::no_delay(true), ec);
    arm(shared_.options.header_time);
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      stream_.async_handshake(net::ssl::stream_base::server,
                              [self = this->shared_from_this()](error_code error) {
                                if (error) return self->close();
                                self->read_header();
                              });
    } else {
      read_header();
    }
  }

  void post_answer(Response response) override {
    net::post(stream_.get_executor(),
              [self = this->shared_from_this(), response = std::move(response)]() mutable {
                if (!self->waiting_) return;
                self->waiting_ = false;
                self->write(response_text(response, self->keep_alive_, !self->head_only_));
              });
  }
  void set_proven() override { shared_.guests.proven(guest_); }
  void drop() override {
    net::post(stream_.get_executor(), [self = this->shared_from_this()] { self->close(); });
  }

 private:
  tcp::socket& socket() {
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }

  // Closes the connection after `time` unless arm() is called again.
  void arm(std::chrono::nanoseconds time) {
    timer_.expires_after(time);
    timer_.async_wait([self = this->shared_from_this()](error_code ec) {
      if (ec || self->timer_.expiry() > std::chrono::steady_clock::now()) return;
      if (self->waiting_ && !self->peer_gone()) return self->arm(kPeerCheck);
      self->close();
    });
  }

  void close() {
    waiting_ = false;
    timer_.cancel();
    error_code ignored;
    socket().close(ignored);
  }

  // True if the peer has closed or reset the connection. A read would show that, too, but would
  // consume a pipelined request.
  bool peer_gone() {
    tcp_info info{};
    socklen_t size = sizeof info;
    const int descriptor = socket().native_handle();
    return getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
           info.tcpi_state != TCP_ESTABLISHED;
  }

  void read_next() {
    if (buffer_.size() > 0) {
      arm(shared_.options.header_time);
      return read_header();
    }
    arm(shared_.options.idle_time);
    constexpr std::size_t kFirstRead = 4096;
    stream_.async_read_some(buffer_.prepare(kFirstRead),
                            [self = this->shared_from_this()](error_code ec, std::size_t bytes) {
                              if (ec) return self->close();
                              self->buffer_.commit(bytes);
                              self->arm(self->shared_.options.header_time);
                              self->read_header();
                            });
  }

  void read_header() {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(shared_.options.max_header_bytes));
    parser_->body_limit(shared_.options.max_body_bytes);
    beast::http::async_read_header(
        stream_, buffer_, *parser_,
        [self = this->shared_from_this()](error_code ec, std::size_t) { self->on_header(ec); });
  }

  void on_header(error_code ec) {
    using beast::http::error;
    const auto& options = shared_.options;
    if (ec == error::header_limit) {
      return refuse(431, "header above " + std::to_string(options.max_header_bytes) + " bytes\n");
    }
    if (ec == error::body_limit) return refuse_body();
    if (ec == error::end_of_stream || ec == error::partial_message) return close();
    if (ec && ec.category() == make_error_code(error::bad_method).category()) {
      return refuse(400, "not HTTP/1.1: " + ec.message() + "\n");
    }
    if (ec) return close();
    head_only_ = parser_->get().method() == beast::http::verb::head;
    if (!method_of(parser_->get().method())) return refuse(405, "unknown method\n");
    if (parser_->chunked()) return refuse(411, "chunked bodies are not accepted\n");
    const auto length = parser_->content_length();
    if (length && *length > options.max_body_bytes) return refuse_body();
    if (parser_->is_done()) return dispatch();
    arm(kBodyTime);
    beast::http::async_read(stream_, buffer_, *parser_,
                            [self = this->shared_from_this()](error_code error, std::size_t) {
                              if (error) return self->close();
                              self->dispatch();
                            });
  }

  void dispatch() {
    keep_alive_ = parser_->keep_alive();
    auto message = parser_->release();
    IncomingRequest incoming;
    incoming.remote_address = remote_;
    incoming.request.method = *method_of(message.method());
    incoming.request.path = std::string(message.target());
    for (const auto& field : message) {
      incoming.request.headers.emplace_back(std::string(field.name_string()),
                                            std::string(field.value()));
    }
    incoming.request.body = std::move(message.body());
    waiting_ = true;
    arm(kPeerCheck);
    shared_.guests.refresh(guest_);
    const auto answer = std::make_shared<Answer>(this->weak_from_this(), shared_.gate);
    incoming.proven = [answer] { answer->proven(); };
    shared_.handler(std::move(incoming),
                    [answer](Response response) { answer->send(std::move(response)); });
  }

  void refuse_body() {
    refuse(413, "body above " + std::to_string(shared_.options.max_body_bytes) + " bytes\n");
  }
  void refuse(int status, std::string why) {
    keep_alive_ = false;
    write(response_text({status, {}, std::move(why)}, false));
  }

  void write(std::string text) {
    out_ = std::move(text);
    arm(kWriteTime);
    net::async_write(stream_, net::buffer(out_),
                     [self = this->shared_from_this()](error_code ec, std::size_t) {
                       if (ec) return self->close();
                       self->out_ = {};
                       if (self->keep_alive_) return self->read_next();
                       self->linger();
                     });
  }

  // Closing with unread bytes resets the connection, and the client may lose the answer. So this
  // ends the sending side and reads the rest for a while.
  void linger() {
    error_code ignored;
    socket().shutdown(tcp::socket::shutdown_send, ignored);
    arm(kLingerTime);
    swallow();
  }
  void swallow() {
    socket().async_read_some(net::buffer(waste_),
                             [self = this->shared_from_this()](error_code ec, std::size_t) {
                               if (ec) return self->close();
                               self->swallow();
                             });
  }

  Shared& shared_;
  std::shared_ptr<net::ssl::context> context_;  // keeps a replaced certificate alive
  Stream stream_;
  net::steady_timer timer_;
  beast::flat_buffer buffer_;
  std::optional<beast::http::request_parser<beast::http::string_body>> parser_;
  std::string remote_, out_;
  Guests::Id guest_ = 0;
  bool head_only_ = false;
  bool keep_alive_ = false;
  bool waiting_ = false;  // for the handler's answer
  std::array<char, 4096> waste_;
};

class BeastServer final : public Server {
 public:
  BeastServer(const ServerOptions& options, Handler handler)
      : shared_{.options = options,
                .handler = std::move(handler),
                .guests{options.max_connections, options.max_strangers_of_one_address}} {}
  ~BeastServer() override { stop(); }

  Status start() {
    const auto& options = shared_.options;
    if (!options.tls.certificate_pem.empty()) {
      WEIR_TRY(TlsContext made, make_server_context(options.tls));
      context_ = std::make_shared<net::ssl::context>(made.release());
    }
    io_ = std::make_unique<net::io_context>(options.threads);
    acceptor_.emplace(*io_);
    pause_.emplace(*io_);
    if (const error_code ec = listen(options.address, options.port)) {
      const std::string why =
          ec == net::error::address_in_use ? "address already in use" : ec.message();
      const std::string address = options.address.empty() ? "" : " of " + options.address;
      return Error{Code::kUnavailable,
                   "port " + std::to_string(options.port) + address + ": " + why};
    }
    port_ = acceptor_->local_endpoint().port();
    accept();
    for (int i = 0; i < options.threads; ++i) {
      threads_.emplace_back([this, name = options.name.substr(0, 15)] {
        pthread_setname_np(pthread_self(), name.c_str());
        io_->run();
      });
    }
    return Unit{};
  }

  int port() const override { return port_; }
  void set_max_connections(std::size_t limit) override { shared_.guests.set_most(limit); }

  void set_tls(const TlsIdentity& tls) override {
    auto made = make_server_context(tls);
    if (!made) {
      log_error("http", "new server certificate refused, the old one stays",
                {{"reason", made.error().message}});
      return;
    }
    const std::lock_guard lock(context_mutex_);
    context_ = std::make_shared<net::ssl::context>((*std::move(made)).release());
  }

  void stop() override {
    if (!io_) return;
    {
      const std::lock_guard lock(shared_.gate->mutex);
      shared_.gate->running = false;
    }
    io_->stop();
    threads_.clear();  // joins the threads
    acceptor_.reset();
    pause_.reset();
    io_.reset();  // destroys the pending callbacks and with them the sessions
  }

 private:
  error_code listen(const std::string& address, int port) {
    error_code ec;
    const auto number = static_cast<unsigned short>(port);
    if (address.empty()) {
      ec = bind(tcp::endpoint(tcp::v6(), number));
      if (ec != net::error::address_family_not_supported) return ec;
      return bind(tcp::endpoint(tcp::v4(), number));  // for a kernel without IPv6
    }
    const auto ip = net::ip::make_address(address, ec);
    return ec ? ec : bind(tcp::endpoint(ip, number));
  }

  error_code bind(const tcp::endpoint& endpoint) {
    error_code ec;
    acceptor_->open(endpoint.protocol(), ec);
    if (ec) return ec;
    acceptor_->set_option(net::socket_base::reuse_address(true), ec);
    if (!ec && endpoint.protocol() == tcp::v6()) {
      acceptor_->set_option(net::ip::v6_only(false), ec);
    }
    if (!ec) acceptor_->bind(endpoint, ec);
    if (!ec) acceptor_->listen(net::socket_base::max_listen_connections, ec);
    return ec;
  }

  void accept() {
    acceptor_->async_accept(net::make_strand(*io_), [this](error_code ec, tcp::socket socket) {
      if (ec) {  // mostly because no descriptors are left
        shared_.guests.drop_oldest_stranger();
        pause_->expires_after(kAcceptPause);
        pause_->async_wait([this](error_code aborted) {
          if (!aborted) accept();
        });
        return;
      }
      open(std::move(socket));
      accept();
    });
  }

  void open(tcp::socket socket) {
    std::shared_ptr<net::ssl::context> context;
    {
      const std::lock_guard lock(context_mutex_);
      context = context_;
    }
    const auto executor = socket.get_executor();
    if (context) {
      auto& tls = *context;
      auto session =
          std::make_shared<Session<TlsStream>>(std::move(socket), shared_, std::move(context), tls);
      session->enter();
      net::post(executor, [session] { session->start(); });
    } else {
      auto session =
          std::make_shared<Session<tcp::socket>>(std::move(socket), shared_, std::move(context));
      session->enter();
      net::post(executor, [session] { session->start(); });
    }
  }

  Shared shared_;
  std::mutex context_mutex_;                    // guards context_
  std::shared_ptr<net::ssl::context> context_;  // null: plain http
  std::unique_ptr<net::io_context> io_;
  std::optional<tcp::acceptor> acceptor_;
  std::optional<net::steady_timer> pause_;
  int port_ = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace

Result<std::unique_ptr<Server>> make_server(const ServerOptions& options, Handler handler) {
  auto server = std::make_unique<BeastServer>(options, std::move(handler));
  WEIR_OK(server->start());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace weir::http
