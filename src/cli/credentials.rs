//! The public credentials of `QStash`'s development server. They protect nothing.

use hookstash_shared::config::Settings;
use hookstash_shared::signing::SigningKeys;

/// The token of its default user.
pub(super) const DEVELOPMENT_TOKEN: &str =
    "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0=";

/// Fills what is not set with the public credentials.
pub(super) fn fill(mut settings: Settings) -> Settings {
    settings
        .token
        .get_or_insert_with(|| DEVELOPMENT_TOKEN.into());
    // With a secret key they are stored, and made there.
    if settings.secret_key.is_none() {
        settings
            .signing_keys
            .get_or_insert_with(SigningKeys::development);
    }
    settings
}
