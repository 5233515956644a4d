// SPDX-License-Identifier: Apache-2.0
// Certificates for tests of TLS, made on the spot: an authority and what it signs. Aborts when
// OpenSSL fails.
#pragma once

#include <string>
#include <vector>

namespace weir::test {

struct Certificate {
  std::string certificate_pem, key_pem;
};

// A self-signed authority, or one that another has signed.
Certificate make_authority(const std::string& common_name, const Certificate* issuer = nullptr);
// A server's (or client's) certificate for these names: "localhost", "127.0.0.1", ...
Certificate make_certificate(const Certificate& authority, const std::vector<std::string>& names);
// One that has signed itself and is no authority.
Certificate make_self_signed(const std::vector<std::string>& names);

}  // namespace weir::test
