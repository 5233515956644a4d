// SPDX-License-Identifier: Apache-2.0
// TLS contexts of OpenSSL: TLS >= 1.2, a client trusts the given CA and nothing else. The given CA
// need not have signed itself: one below a root that stays elsewhere will do.
#pragma once

#include <memory>
#include <string>

#include "worker/base/result.h"
#include "worker/http/server.h"

struct ssl_ctx_st;
struct ssl_st;
struct x509_store_st;

namespace weir::http {

using TlsContext = std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st*)>;

// kInvalid, naming the file: unreadable, or key and certificate do not belong together.
Result<TlsContext> make_client_context(const std::string& ca_file, const std::string& cert_file,
                                       const std::string& key_file);
Result<TlsContext> make_server_context(const TlsIdentity& identity);

// A chain may end at any certificate of the store.
void trust_as_given(x509_store_st* store);

// Makes the handshake refuse a certificate without this name or IP; sends names as SNI.
void expect_peer(ssl_st* connection, const std::string& name_or_ip);
// Why the peer's certificate was refused; "" when it was not.
std::string refusal(const ssl_st* connection);

}  // namespace weir::http
