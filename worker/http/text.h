// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 text that client and server share: base URLs, heads of requests and answers. Pure.
#pragma once

#include <string>

#include "worker/base/result.h"
#include "worker/http/transport.h"

namespace weir::http {

struct BaseUrl {
  bool tls = false;
  std::string host;       // without brackets
  std::string port;       // decimal
  std::string prefix;     // path before the request's path, without a slash at its end
  std::string authority;  // for the Host header
};

// Text of a URL for logs and errors: user name, password and query may be secrets and become "***".
// Print URLs only in this form.
std::string shown_url(const std::string& url);

// kInvalid with the reason: another scheme, a user name, no host or a bad port.
Result<BaseUrl> parse_base_url(const std::string& url);

const char* method_name(Method method);

// Head and body of a request with Connection: close. kInvalid: the path or a header would break the
// message.
Result<std::string> request_text(const BaseUrl& base, const Request& request);

// An answer for people: `line` as text/plain with a newline.
Response plain_text(int status, std::string line);

// Head and body of an answer. 204 and 304 have no body; an answer to HEAD has only its length.
std::string response_text(const Response& response, bool keep_alive, bool with_body = true);

}  // namespace weir::http
