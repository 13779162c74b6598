//! What the world checks. Names are those of the design; the two liveness rules have none there.

macro_rules! invariants {
    ($($name:ident = $id:literal: $text:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Invariant { $($name),* }

        impl Invariant {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// As the design names it.
            pub fn id(self) -> &'static str {
                match self { $(Self::$name => $id),* }
            }

            /// The part of its rule that is checked here.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

invariants! {
    P3 = "INV-P3": "an identity has one connection that is opening, live or closing; another dial gets 409",
    P4 = "INV-P4": "before a matching hello Core stores nothing and sends nothing",
    P5 = "INV-P5": "no welcome precedes committed presence, and a removal is fenced to its connection",
    P6 = "INV-P6": "the stored owner epoch never decreases and is durable before the connection is used",
    P7 = "INV-P7": "accepted request sequences are 1, 2, 3 per connection",
    P8 = "INV-P8": "a request gets at most one response, on its own connection",
    P9 = "INV-P9": "a create or command whose answer was withheld is never sent again",
    P10 = "INV-P10": "nothing is released, and no absence recorded, without proof",
    P11 = "INV-P11": "no create starts native work on a generation that is not ready then",
    P12 = "INV-P12": "at most 32 requests are pending, each with a budget of 1..120,000 ms",
    P13 = "INV-P13": "at most one lifecycle mutation per allocation is outstanding",
    P14 = "INV-P14": "a retention_ack that differs permits nothing and closes",
    P15 = "INV-P15": "omission from health changes nothing stored",
    P17 = "INV-P17": "the pin moves only to the ready target of the commit, on the current connection and epoch",
    P19 = "INV-P19": "a failed response contributes nothing but an exact settled receipt",
    P22 = "INV-P22": "only a confirmed 401 ends the node with 78",
    P23 = "INV-P23": "a loss needs two answers 5 s apart on one connection",
    P26 = "INV-P26": "a removed node gets 401, and its connection no further acknowledgement",
    P28 = "INV-P28": "after an invalid answer the connection goes on; after a violation no frame is accepted",
    P29 = "INV-P29": "retention consumes no request sequence",
    P32 = "INV-P32": "an unknown outcome is settled only by an answer of the node it was sent to",
    N20 = "INV-N20": "an operation runs only on its own generation's provider",
    N24 = "INV-N24": "operations of one allocation never overlap and start in order; what can start has started",
    N25 = "INV-N25": "what expired while it waited performs no native call",
    N26 = "INV-N26": "active_operations never exceeds 32 and is true",
    N27 = "INV-N27": "after a disconnect nothing that waited runs, and no answer crosses",
    V6 = "INV-V6": "no native effect of create precedes its durable receipt",
    C1 = "INV-C1": "a transaction of an older epoch changes no row",
    C2 = "INV-C2": "the owner epoch increases with every change of holder and every completed reset",
    C8 = "INV-C8": "what was answered keep false is never kept again, and collected only then",
    C10 = "INV-C10": "no placement exceeds a node's limits",
    C12 = "INV-C12": "an environment has at most one unreleased allocation",
    C16 = "INV-C16": "at most one mutation is open, and none is sent before it is stored",
    C17 = "INV-C17": "no create is sent twice for one allocation",
    C18 = "INV-C18": "release of what was ever sent needs a settled receipt and confirmed cleanup",
    C19 = "INV-C19": "an unreachable node loses no active or unresolved allocation",
    C20 = "INV-C20": "a suspended allocation, whose active slot is free, has nothing that lives",
    C21 = "INV-C21": "a sandbox lives once, and a checkpoint is restored to one target at a time and not after its use",
    C22 = "INV-C22": "a confirmed loss needs two qualifying answers on one connection",
    C23 = "INV-C23": "a reset view counts each resource once, and a reset is completed at exactly nothing left",
    C24 = "INV-C24": "a cordoned or draining node receives no new placement",
    C27 = "INV-C27": "no mutation is sent with under 5 s of lease left",
    C28 = "INV-C28": "nothing is released while a compute or checkpoint of it is left",
    C29 = "INV-C29": "a node that holds anything is not removed",
    C33 = "INV-C33": "retention ends before its deadline only by what somebody asked for",
    C34 = "INV-C34": "a restore is verified by a resume alone",
    C35 = "INV-C35": "a checkpoint is used up by its target's first link alone, and deleted after that",
    C36 = "INV-C36": "a target whose kill is stored is never admitted",
    C37 = "INV-C37": "elapsed time and failed attempts destroy no last state, and end no sandbox that ever linked",
    C39 = "INV-C39": "a compute has ended by proof alone",
    C40 = "INV-C40": "entering cleanup changes no node's counts",
    C41 = "INV-C41": "only a refusal, a target that came into being and a confirmed loss count as failures",
    S2 = "INV-S2": "a Turn is started once",
    S4 = "INV-S4": "what is stored of a Turn is what it wrote",
    S15 = "INV-S15": "no Session with a running Turn or unread output is suspended",
    S21 = "INV-S21": "no Turn reaches a restored sandbox before its checkpoint is used up",
    Asked = "core.md sections 14, 15": "a drain or reset ends what it was asked to, from its deadline on, until it is canceled",
    Labels = "core.md section 7": "a sandbox is placed on a node that carries its Session's labels",
    Discard = "core.md section 4": "what an operator gives up is shown as lost, or as failing to wake",
    OneSandbox = "model S1, S2": "an allocation has at most one sandbox, made once",
    Honest = "honest ends": "two honest ends never find an invalid frame or a violation in each other",
    Comes = "INV-C30": "in calm everything is released or runs, pins reach the target, and nothing is left behind",
    Panic = "panic": "no part of the product panics",
}
