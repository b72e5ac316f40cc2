//! A certificate for `localhost` and the authority that vouches for it: for tests and examples, and for nothing else, since the
//! key is public.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

const AUTHORITY: &[u8] = include_bytes!("../certificates/ca.pem");
const CERTIFICATE: &[u8] = include_bytes!("../certificates/server.pem");
const KEY: &[u8] = include_bytes!("../certificates/server.key");

fn certificate(pem: &[u8]) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem).expect("a certificate")
}

/// A server that calls itself `localhost`.
pub fn server() -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from_pem_slice(KEY).expect("a key");
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate(CERTIFICATE)], key);
    Arc::new(config.expect("they belong together"))
}

/// A client that believes it.
pub fn client() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(AUTHORITY)).expect("an authority");
    let config = ClientConfig::builder().with_root_certificates(roots);
    Arc::new(config.with_no_client_auth())
}
