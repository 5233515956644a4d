// SPDX-License-Identifier: Apache-2.0
#include "operator/metrics/answer.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace weir::metrics {
namespace {

using nlohmann::json;

constexpr std::size_t kMostWords = 200;  // bytes of the server's own text in a message

// Whether a JSON text is nested much deeper than a matrix, which has 6 levels. Such a text must not
// be parsed into a tree.
bool too_deep(std::string_view text) {
  constexpr int kMostLevels = 16;
  int level = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      if (++level > kMostLevels) return true;
    } else if (!quoted && (c == ']' || c == '}')) {
      --level;
    }
  }
  return false;
}

std::string text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool looks_like_html(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && text[begin] == '<';
}

// The first line of a plain text, shortened and without control characters.
std::string words_of(std::string_view text) {
  text = text.substr(0, std::min(kMostWords, text.find_first_of("\r\n")));
  std::string words(text);
  std::replace_if(
      words.begin(), words.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '\x7f'; }, '?');
  return words;
}

std::string message_of(const http::Response& response) {
  if (response.status >= 300 && response.status < 400) {
    const std::string to = http::header_value(response.headers, "Location");
    return "a redirect to " + words_of(to.substr(0, to.find('?')));
  }
  if (looks_like_html(response.body)) return "";
  const auto result = decode_result(response.body, "");
  if (!result && result.error().code == Code::kUnavailable) return words_of(result.error().message);
  return response.body.starts_with('{') ? "" : words_of(response.body);
}

const char* usual_help(int status) {
  switch (status) {
    case 401:
    case 403:
      return "set a token, a password or a tenant's header";
    case 404:
      return "set the URL to the part before /api/v1";
    default:
      return status >= 300 && status < 400 ? "it requires a login or has moved; check the URL" : "";
  }
}

}  // namespace

Error bad_answer(const std::string& why) {
  return {Code::kInvalid, "answer of Prometheus: " + why};
}

Result<json> decode_result(std::string_view text, const std::string& kind) {
  if (too_deep(text)) return bad_answer("nested too deep");
  json root = json::parse(text, nullptr, false);
  if (root.is_discarded() || !root.is_object()) {
    return bad_answer(looks_like_html(text) ? "a page of HTML, not JSON" : "not a JSON object");
  }
  const std::string status = text_of(root, "status");
  if (status == "error") {
    return Error{Code::kUnavailable, text_of(root, "errorType") + ": " + text_of(root, "error")};
  }
  if (status != "success") return bad_answer("status is neither success nor error");

  const auto data = root.find("data");
  if (data == root.end() || !data->is_object()) return bad_answer("no data");
  if (const std::string type = text_of(*data, "resultType"); type != kind) {
    return bad_answer("the result is no " + kind +
                      (type.empty() ? "" : " but a " + words_of(type)));
  }
  const auto result = data->find("result");
  if (result == data->end() || !result->is_array()) return bad_answer("no result");
  return root;
}

std::string refusal(const http::Response& response) {
  std::string text = "Prometheus answered " + std::to_string(response.status);
  const std::string message = message_of(response), help = usual_help(response.status);
  if (!message.empty()) text += ": " + message;
  if (!help.empty()) text += " (" + help + ")";
  return text;
}

}  // namespace weir::metrics
