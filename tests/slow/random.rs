use proptest::prelude::*;
use super::Case;
pub fn case() -> impl Strategy<Value = Case> { Just(Case{client_api:"chat.completions".into(),upstream_api:"chat.completions".into(),request:serde_json::json!({"stream":true}),options:serde_json::json!({}),upstream_status:200,upstream_headers:Default::default(),input:vec![],eof_reset:false,now:0}) }
