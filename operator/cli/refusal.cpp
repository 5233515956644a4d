// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/refusal.h"

#include "operator/cli/text.h"
#include "worker/base/text.h"

namespace weir::cli {
namespace {

constexpr std::size_t kLongest = 400;  // columns of the server's own words

// A server without the CRD answers as a router, not about an object.
bool knows_resource(const kube::ApiError& error, const Attempt& attempt) {
  return !attempt.name.empty() && error.message.find(attempt.name) != std::string::npos;
}

std::string own_words(const kube::ApiError& error) {
  const std::string text = error.causes.empty() ? error.message : joined(error.causes, "; ");
  return cut(printable(text), kLongest);
}

}  // namespace

std::string refusal_text(const kube::ApiError& error, const Attempt& attempt) {
  const std::string where = attempt.namespace_name.empty()
                                ? "in all namespaces"
                                : "in namespace " + attempt.namespace_name;
  switch (error.http_status) {
    case 0:
      return "the API server gives no answer: " + own_words(error);
    case 401:
      return "the API server does not accept these credentials (kubectl auth whoami): " +
             own_words(error);
    case 403:
      return attempt.command + " needs \"" + attempt.verb + " " + attempt.resource + "\" " + where +
             ": ask for role " + attempt.role +
             (attempt.instead.empty() ? "" : ", or " + attempt.instead);
    case 404:
      if (attempt.resource != "pipelinejobs") break;
      if (!knows_resource(error, attempt)) {
        return "this cluster does not know PipelineJobs: Weir's chart is not installed";
      }
      return "no PipelineJob " + attempt.name + " " + where + " (kubectl get ppj -A lists all)";
    default:
      break;
  }
  return attempt.command + (attempt.name.empty() ? "" : " " + attempt.name) +
         ": the API server refuses: " + own_words(error);
}

}  // namespace weir::cli
