// SPDX-License-Identifier: Apache-2.0
// The certificate that the user provides for the control API: the files tls.crt, tls.key and ca.crt
// of a mounted Secret of type kubernetes.io/tls, as cert-manager and corporate authorities write
// it. They are verified as a worker's TLS client verifies them, so that workers accept whatever is
// accepted here.
#pragma once

#include <string>

#include "worker/base/clock.h"
#include "worker/base/result.h"
#include "worker/http/server.h"

namespace weir::control_server {

struct OwnCertificate {
  http::TlsIdentity identity;
  std::string authority_pem;  // certificates that workers must trust, without other text
  SystemTime until{};         // earliest end of a certificate in the chain
};

// If ca.crt is missing or empty, the last certificate of tls.crt replaces it, provided that it is
// not the leaf or is self-signed. kInvalid names the file and the reason. Blocks while it reads.
Result<OwnCertificate> read_own_certificate(const std::string& folder, const std::string& dns_name,
                                            SystemTime now);

}  // namespace weir::control_server
