// SPDX-License-Identifier: Apache-2.0
// Errors of the API server for users: one line that says what to do. Pure.
#pragma once

#include <string>

#include "operator/kube/client.h"

namespace weir::cli {

// A request as a user knows it.
struct Attempt {
  std::string command;         // "why"
  std::string verb, resource;  // of RBAC: "get", "pipelinejobs"
  std::string role;            // the default role that may do it: "view", "edit"
  std::string namespace_name;  // "" = all
  std::string name;            // of the object; "" = a list
  std::string instead = {};    // what this user may do without that right
};

std::string refusal_text(const kube::ApiError& error, const Attempt& attempt);

}  // namespace weir::cli
