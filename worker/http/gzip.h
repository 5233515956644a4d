// SPDX-License-Identifier: Apache-2.0
// The content coding gzip (RFC 1952) of answers. Pure.
#pragma once

#include <string>
#include <string_view>

namespace weir::http {

std::string gzip(std::string_view text);
// Whether an Accept-Encoding header allows it: "gzip, deflate", "*;q=0.5", but not "gzip;q=0".
bool accepts_gzip(std::string_view accept_encoding);

}  // namespace weir::http
