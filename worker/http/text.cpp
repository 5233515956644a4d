// SPDX-License-Identifier: Apache-2.0
#include "worker/http/text.h"

#include <algorithm>
#include <cctype>

#include "worker/base/host_port.h"
#include "worker/base/utf8.h"
#include "worker/http/server.h"

namespace weir::http {
namespace {

constexpr std::size_t kLongestShown = 300;

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

bool is_unreserved(char c) {  // RFC 3986, 2.3
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_' ||
         c == '~';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      const int high = hex_digit(text[i + 1]);
      const int low = hex_digit(text[i + 2]);
      if (high >= 0 && low >= 0) {
        out += static_cast<char>(high * 16 + low);
        i += 2;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

const char* reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 411:
      return "Length Required";
    case 413:
      return "Payload Too Large";
    case 428:
      return "Precondition Required";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

}  // namespace

std::string header_value(const Headers& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (same_name(key, name)) return value;
  }
  return "";
}

std::string path_of(const std::string& path) {
  return path.substr(0, path.find('?'));
}

std::string query_value(const std::string& path, const std::string& name) {
  const auto question = path.find('?');
  if (question == std::string::npos) return "";
  std::string_view query = std::string_view(path).substr(question + 1);
  query = query.substr(0, query.find('#'));
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const auto equals = pair.find('=');
    if (percent_decoded(pair.substr(0, equals)) != name) continue;
    return equals == pair.npos ? "" : percent_decoded(pair.substr(equals + 1));
  }
  return "";
}

std::string percent_encoded(const std::string& text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (is_unreserved(c)) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string shown_url(const std::string& url) {
  const auto scheme = url.find("://");
  const std::size_t begin = scheme == url.npos ? 0 : scheme + 3;
  const auto at = url.rfind('@');  // a password may contain '@', so search the last one
  std::string shown = url;
  if (at != url.npos && at >= begin) shown = url.substr(0, begin) + "***" + url.substr(at);
  const auto query = shown.find_first_of("?#");
  return query == shown.npos ? shown : shown.substr(0, query + 1) + "***";
}

Result<BaseUrl> parse_base_url(const std::string& url) {
  BaseUrl out;
  std::string_view rest = url;
  const auto bad = [&url](const std::string& why) {
    return invalid("URL \"" + one_line(shown_url(url), kLongestShown) + "\": " + why);
  };
  if (rest.starts_with("https://")) {
    out.tls = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return bad("starts neither with http:// nor with https://");
  }
  if (std::ranges::any_of(url, [](char c) { return is_control(c) || c == ' '; })) {
    return bad("holds a space or control character");
  }
  out.prefix = std::string(rest.substr(std::min(rest.size(), rest.find('/'))));
  while (out.prefix.ends_with('/')) out.prefix.pop_back();
  rest = rest.substr(0, rest.find('/'));
  // An '@' behind a slash is most likely part of a password that was not encoded.
  if (url.find_first_of("@?#") != url.npos) {
    return bad("user names, queries and fragments are not allowed");
  }
  out.authority = std::string(rest);

  std::string_view port;
  if (rest.starts_with('[')) {
    const auto end = rest.find(']');
    if (end == rest.npos) return bad("no ] after an IPv6 address");
    out.host = std::string(rest.substr(1, end - 1));
    port = rest.substr(end + 1);
  } else {
    const auto colon = rest.find(':');
    out.host = std::string(rest.substr(0, colon));
    port = colon == rest.npos ? "" : rest.substr(colon);
  }
  if (out.host.empty()) return bad("no host");
  if (port.empty()) {
    out.port = out.tls ? "443" : "80";
    return out;
  }
  if (port[0] != ':') return bad("text after the IPv6 address");
  const auto number = parse_port(port.substr(1));
  if (!number) return bad(number.error().message);
  out.port = std::to_string(*number);
  return out;
}

const char* method_name(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kPost:
      return "POST";
    case Method::kPut:
      return "PUT";
    case Method::kPatch:
      return "PATCH";
    case Method::kDelete:
      return "DELETE";
  }
  return "?";
}

Result<std::string> request_text(const BaseUrl& base, const Request& request) {
  const auto breaks_line = [](char c) { return is_control(c) && c != '\t'; };
  const auto& path = request.path;
  if (path.empty() || path[0] != '/' || path.find(' ') != path.npos ||
      std::ranges::any_of(path, breaks_line)) {
    return invalid("path \"" + path + "\" is no path of a request");
  }
  std::string out =
      std::string(method_name(request.method)) + " " + base.prefix + path +
      " HTTP/1.1\r\nHost: " + base.authority +
      "\r\nConnection: close\r\nContent-Length: " + std::to_string(request.body.size()) + "\r\n";
  for (const auto& [name, value] : request.headers) {
    if (name.empty() || name.find_first_of(" :\t") != name.npos ||
        std::ranges::any_of(name, breaks_line) || std::ranges::any_of(value, breaks_line)) {
      return invalid("header \"" + name + "\" holds a line break or bad name");
    }
    out += name + ": " + value + "\r\n";
  }
  return out + "\r\n" + request.body;
}

Response plain_text(int status, std::string line) {
  return {status, {{"Content-Type", "text/plain"}}, std::move(line) + "\n"};
}

std::string response_text(const Response& response, bool keep_alive, bool with_body) {
  std::string out =
      "HTTP/1.1 " + std::to_string(response.status) + " " + reason_phrase(response.status) + "\r\n";
  for (const auto& [name, value] : response.headers) out += name + ": " + value + "\r\n";
  if (!keep_alive) out += "Connection: close\r\n";
  if (response.status == 204 || response.status == 304) return out + "\r\n";
  out += "Content-Length: " + std::to_string(response.body.size()) + "\r\n\r\n";
  return with_body ? out + response.body : out;
}

}  // namespace weir::http
