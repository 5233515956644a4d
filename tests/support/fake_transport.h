// SPDX-License-Identifier: Apache-2.0
// An API server in memory behind the Transport seam: objects by path, one version counter, LIST,
// WATCH, POST, PUT, PATCH, DELETE and scripted faults. It checks nothing (no schema, no RBAC, no
// owners of fields): whoever needs more writes a test on a real server. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "worker/http/transport.h"

namespace weir::test {

class FakeTransport final : public http::Transport {
 public:
  // Applies to the next `count` requests whose "METHOD path?query" holds `match`.
  struct Fault {
    std::string match;
    int count = 1;
    std::optional<Error> error;              // no answer
    std::optional<http::Response> response;  // this one instead
    bool after_effect = false;               // the server has done it nevertheless
  };
  void fail(Fault fault);

  // Straight into the store, as another client would; path of the object, with namespace.
  void put(const std::string& path, const std::string& json);
  void remove(const std::string& path);
  std::string get(const std::string& path) const;  // "" = absent
  std::vector<std::string> paths() const;
  // "METHOD path?query", in order of arrival; bodies alike.
  std::vector<std::string> requests() const;
  std::string last_body() const;
  http::Headers last_headers() const;
  int count(const std::string& match) const;  // requests that hold match

  void end_watches();  // as at timeoutSeconds
  void compact();      // versions up to now are gone: a watch from one of them gets 410
  void wait_for_watches(int open);

  Result<http::Response> send(const http::Request& request, http::Deadline deadline,
                              std::stop_token stop) override;
  Result<http::Response> stream(const http::Request& request, std::stop_token stop,
                                const std::function<void(std::string_view)>& on_bytes) override;

 private:
  struct Address;  // parts of a path
  struct Change {
    std::int64_t version;
    std::string path, line;  // of the object; the watch line
  };
  static Address parse(const std::string& path);
  static http::Response status(int code, const std::string& reason, const std::string& message);
  std::optional<Fault> take_fault(const std::string& line);
  http::Response serve(const http::Request& request);
  http::Response create(const Address& address, const http::Request& request);
  http::Response change(const Address& address, const http::Request& request);
  http::Response erase(const Address& address, const http::Request& request);
  http::Response list(const Address& address) const;
  void store(const std::string& path, const std::string& json, const char* type);

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable_any changed_;
  std::map<std::string, std::string> objects_;
  std::vector<Change> changes_;
  std::vector<Fault> faults_;
  std::vector<std::string> requests_, bodies_;
  http::Headers last_headers_;
  std::int64_t version_ = 100, compacted_ = 0;
  int next_uid_ = 1, watches_ = 0, generation_ = 0;
};

}  // namespace weir::test
