// SPDX-License-Identifier: Apache-2.0
// TLS contexts of OpenSSL, TLS >= 1.2. A client trusts the given CA and nothing else. The given CA
// need not be self-signed: an intermediate CA without its root is enough.
#pragma once

#include <memory>
#include <string>

#include "worker/base/result.h"
#include "worker/http/server.h"
#include "worker/http/transport.h"

struct ssl_ctx_st;
struct ssl_st;
struct x509_store_st;

namespace weir::http {

using TlsContext = std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st*)>;

// Errors are kInvalid and name the file: unreadable, or key and certificate do not match.
// Certificates and key come from the options, texts before files.
Result<TlsContext> make_client_context(const Options& options);
Result<TlsContext> make_server_context(const TlsIdentity& identity);

// Lets a chain end at any certificate of the store.
void trust_as_given(x509_store_st* store);

// Makes the handshake refuse a certificate without this name or IP. A name is also sent as SNI.
void expect_peer(ssl_st* connection, const std::string& name_or_ip);
// Why the peer's certificate was refused; "" if it was accepted.
std::string refusal(const ssl_st* connection);

}  // namespace weir::http
