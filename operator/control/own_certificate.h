// SPDX-License-Identifier: Apache-2.0
// The certificate that whoever runs the cluster gives the control API: the files tls.crt, tls.key
// and ca.crt of a mounted Secret of type kubernetes.io/tls, as cert-manager and corporate
// authorities write it. They are judged as a worker's TLS client judges them, so that what is taken
// here is what workers take.
#pragma once

#include <string>

#include "worker/base/clock.h"
#include "worker/base/result.h"
#include "worker/http/server.h"

namespace weir::control_server {

struct OwnCertificate {
  http::TlsIdentity identity;
  std::string authority_pem;  // what workers must trust, in normal form: certificates only
  SystemTime until{};         // then the first certificate of its chain ends
};

// Where ca.crt is missing or empty, the last certificate of tls.crt stands in for it, if it is an
// authority or signed itself. kInvalid: names the file and the reason. Blocks for the disk's time.
Result<OwnCertificate> read_own_certificate(const std::string& folder, const std::string& dns_name,
                                            SystemTime now);

}  // namespace weir::control_server
