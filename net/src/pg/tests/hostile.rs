//! Frames that lie.

use super::*;

#[test]
fn too_large_a_message() {
    let e = FakeEngine::new(Limits {
        statement_bytes: 64 * 1024,
        ..Limits::default()
    });
    session(&e, |mut c, _| async move {
        let long = format!("SELECT '{}'\0", "x".repeat(300_000));
        c.send(&raw(b'Q', long.as_bytes())).await;
        let heard = c.hear_all().await;
        assert!(
            heard[0].starts_with("E ERROR 54000") && heard[0].contains("statement_bytes"),
            "{heard:?}"
        );
        // What follows is read as ever.
        assert_eq!(c.query("").await, ["I", "Z I"]);
        let heard = ask(
            &mut c,
            [
                parse("", &long[..long.len() - 1], &[]),
                execute("", 0),
                sync(),
            ],
        )
        .await;
        assert!(heard[0].starts_with("E ERROR 54000"), "{heard:?}");
        assert_eq!(heard[1..], ["Z I"]);
        // More than any message may have.
        c.send(&[b'Q', 0x7f, 0xff, 0xff, 0xff]).await;
        assert!(c.hear().await.starts_with("E FATAL 08P01"));
        assert_eq!(c.hear().await, "closed");
    });
}

fn garbage(bytes: &[u8], start: bool) {
    let cx = context(engine());
    let (a, b): (Pipe, Pipe) = pipe(1 << 20);
    block_on(zip(serve(a, cx), async {
        let mut c = Client::new(b);
        if start {
            c = ready_client(c, &[]).await;
        }
        c.send(bytes).await;
        futures_lite::AsyncWriteExt::close(&mut c.pipe)
            .await
            .unwrap();
        while c.hear().await != "closed" {}
    }));
}

/// Frames that are almost right.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        prop::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(255), Just(b'S'), Just(b'P')],
            0..40
        ),
        Just(b"\0SELECT 1\0\0\0".to_vec()),
        Just(b"BEGIN; SELECT 1\0".to_vec()),
    ];
    let kind = prop::sample::select(b"QPBDECHSXdcfFp?".to_vec());
    let one = (kind, body, -3i32..3).prop_map(|(kind, body, lie)| {
        let len = (body.len() as i32 + 4 + if lie.abs() > 1 { lie } else { 0 }).max(0);
        [&[kind], &len.to_be_bytes()[..], &body].concat()
    });
    prop::collection::vec(one, 0..8).prop_map(|f| f.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, frames in frames(), start: bool) {
        fuzz_entry(&bytes);
        fuzz_entry(&frames);
        garbage(&bytes, start);
        garbage(&frames, true);
    }

    #[test]
    fn frames_survive_any_split(cuts in prop::collection::vec(1usize..30, 1..20)) {
        let whole = encode([
            parse("name", "SELECT $1", &[20, 25]),
            bind("p", "name", &[1, 0], &[Some(&[0; 8]), None], &[1]),
            execute("p", 5),
            sync(),
        ]);
        let mut input = Input::default();
        let mut kinds = vec![];
        let mut rest = &whole[..];
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            input.push(now);
            rest = later;
            while let Next::Frame(kind, body) = input.next(1 << 20).unwrap() {
                frame::decode(kind, body).unwrap();
                kinds.push(kind);
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(kinds, b"PBES".to_vec());
        prop_assert!(input.is_empty());
    }
}
