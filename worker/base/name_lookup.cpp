// SPDX-License-Identifier: Apache-2.0
#include "worker/base/name_lookup.h"

#include <algorithm>
#include <array>
#include <netdb.h>
#include <sys/socket.h>

namespace weir {

struct NameLookup::Question {
  explicit Question(std::string name) : host(std::move(name)) {
    hints.ai_socktype = SOCK_STREAM;
    request.ar_name = host.c_str();
    request.ar_request = &hints;
    std::array<gaicb*, 1> list = {&request};
    begun = getaddrinfo_a(GAI_NOWAIT, list.data(), 1, nullptr);
  }
  ~Question() {
    if (request.ar_result != nullptr) freeaddrinfo(request.ar_result);
  }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  const std::string host;
  addrinfo hints{};
  gaicb request{};
  int begun = 0;
};

NameLookup::NameLookup(const std::string& host) : question_(std::make_unique<Question>(host)) {}

NameLookup::~NameLookup() {
  if (question_->begun != 0) return;
  // The C library's thread still writes to the question, so the question must outlive this object.
  if (gai_cancel(&question_->request) == EAI_NOTCANCELED) static_cast<void>(question_.release());
}

std::optional<Result<std::vector<std::string>>> NameLookup::poll() {
  const auto failed = [](int code) {
    return Result<std::vector<std::string>>(Error{Code::kUnavailable, gai_strerror(code)});
  };
  if (question_->begun != 0) return failed(question_->begun);
  const int state = gai_error(&question_->request);
  if (state == EAI_INPROGRESS) return std::nullopt;
  if (state != 0) return failed(state);
  std::vector<std::string> ips;
  for (const addrinfo* one = question_->request.ar_result; one != nullptr; one = one->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    const int code = getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr,
                                 0, NI_NUMERICHOST);
    const bool known = std::ranges::find(ips, text.data()) != ips.end();
    if (code == 0 && !known) ips.emplace_back(text.data());
  }
  if (ips.empty()) return failed(EAI_NONAME);
  return ips;
}

}  // namespace weir
