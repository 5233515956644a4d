// SPDX-License-Identifier: Apache-2.0
// An HTTP answer that is not 2xx -> ApiError. Pure.
#pragma once

#include "operator/kube/client.h"

namespace weir::kube {

// Reads the metav1.Status in the body; a proxy's HTML or an empty body still gives a code.
ApiError decode_status_error(const http::Response& response);
// Without an answer.
ApiError transport_error(const Error& error);
// "namespace is being terminated": nothing can be created there any more.
bool is_namespace_terminating(const ApiError& error);

}  // namespace weir::kube
