// SPDX-License-Identifier: Apache-2.0
// The content coding gzip (RFC 1952) for answers. Pure.
#pragma once

#include <string>
#include <string_view>

namespace weir::http {

std::string gzip(std::string_view text);
// True if an Accept-Encoding header allows gzip: "gzip, deflate" or "*;q=0.5", but not "gzip;q=0".
bool accepts_gzip(std::string_view accept_encoding);

}  // namespace weir::http
