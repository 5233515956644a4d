// SPDX-License-Identifier: Apache-2.0
// Turns an HTTP answer that is not 2xx into an ApiError. Pure.
#pragma once

#include "operator/kube/client.h"

namespace weir::kube {

// Reads the metav1.Status in the body. A body without one, such as a proxy's HTML, gives a code.
ApiError decode_status_error(const http::Response& response);
// The ApiError of a request that got no answer.
ApiError transport_error(const Error& error);
// The namespace is being deleted, so nothing can be created in it.
bool is_namespace_terminating(const ApiError& error);

}  // namespace weir::kube
