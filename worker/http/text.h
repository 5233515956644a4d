// SPDX-License-Identifier: Apache-2.0
// Text of HTTP/1.1 that both ends need: base URLs, request and answer heads. Pure.
#pragma once

#include <string>

#include "worker/base/result.h"
#include "worker/http/transport.h"

namespace weir::http {

struct BaseUrl {
  bool tls = false;
  std::string host;       // without brackets
  std::string port;       // decimal
  std::string prefix;     // path before the request's, without a slash at its end
  std::string authority;  // as the Host header wants it
};

// The only form in which a URL may be printed: user name, password and query, which may be
// secrets, become "***".
std::string shown_url(const std::string& url);

// kInvalid with the reason: other schemes, user names, no host, bad port.
Result<BaseUrl> parse_base_url(const std::string& url);

const char* method_name(Method method);

// Head and body of a request, Connection: close. kInvalid: a path or header that would break the
// message.
Result<std::string> request_text(const BaseUrl& base, const Request& request);

// An answer to people: `line` as text/plain, with a newline.
Response plain_text(int status, std::string line);

// Head and body of an answer. 204 and 304 have no body; an answer to HEAD only its length.
std::string response_text(const Response& response, bool keep_alive, bool with_body = true);

}  // namespace weir::http
