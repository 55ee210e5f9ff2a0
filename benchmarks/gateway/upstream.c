// A fast fake model API for measurements: one thread, epoll, HTTP/1.1 keep-alive, loopback only.
//
//   POST .../chat/completions   OpenAI Chat dialect          (streamed or whole)
//   POST .../messages           Anthropic Messages dialect   (streamed or whole)
//   GET  anything               a list of models
//
// The model name chooses the answer: "fake" and then, in any order,
//   -p<US>     microseconds between chunks, +-50 % jitter; 0 or left out: as fast as the reader reads
//   -n<COUNT>  stamped chunks (default 200)
//   -s<BYTES>  letters per chunk (default: short words, some escaped, some not ASCII; of -k: 64)
//   -kargs     the chunks are pieces of one tool call's arguments
//   -kmarkup   the chunks are full of what begins like a tool call written as text and is none
//   -kunclosed the chunks are openings of tool calls written as text, none of them ever closed
// so "fake-p5000-n50" streams 50 words, 5 ms apart. A streamed answer ends with a small tool call and the usage.
//
// One send(2) per event. Every chunk carries "@<18 digits of CLOCK_MONOTONIC in ns>;", by which a client learns the one-way
// delay of each chunk in whatever dialect it arrives.
//
// usage: upstream PORT
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STAMP "@000000000000000000;"
#define MOST_CONNECTIONS 65536
#define SENDS_IN_TURN 32 // of one unpaced stream, before the others have theirs

typedef struct {
    char *bytes;
    int length;
    int stamp; // where the 18 digits go, -1: none
} Piece;

typedef struct Script { // what one kind of answer sends
    int messages, streamed, chunks, size;
    char kind; // 't'ext, 'a'rgs, 'm'arkup, 'u'nclosed
    Piece *pieces;
    int count, longest;
    struct Script *next;
} Script;

typedef struct {
    int fd;
    char *in; // the request so far
    size_t in_length, in_room, head, whole, searched;
    int chunked;
    Script *script; // the answer under way
    int next, pace_us;
    char *out; // the piece under way
    int out_length, out_sent, out_room;
    uint64_t due;
    int blocked, slot; // slot: its place in `active`, -1: none
} Connection;

static Script *scripts;
static Connection *active[MOST_CONNECTIONS];
static int active_count, poll_fd;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint32_t jitter(void) {
    static uint32_t state = 12345;
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    return state;
}

// ---------------------------------------------------------------------------------------------------- answers

static void add(Script *script, char *bytes, int length) {
    if (script->count % 64 == 0) script->pieces = realloc(script->pieces, (script->count + 64) * sizeof(Piece));
    char *stamp = memmem(bytes, length, STAMP, strlen(STAMP));
    script->pieces[script->count++] = (Piece){bytes, length, stamp ? (int)(stamp - bytes) + 1 : -1};
    if (length > script->longest) script->longest = length;
}

static Piece event_piece(const char *event) { // one server-sent event as one HTTP chunk
    char *bytes;
    int length = asprintf(&bytes, "%zx\r\n%s\r\n", strlen(event), event);
    return (Piece){bytes, length, 0};
}

static void add_event(Script *script, const char *event) {
    Piece piece = event_piece(event);
    add(script, piece.bytes, piece.length);
}

#define CHAT_START                                                                                                             \
    "data: {\"id\":\"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG\",\"object\":\"chat.completion.chunk\",\"created\":1741570283,"   \
    "\"model\":\"gpt-4o-mini-2024-07-18\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_06737a9306\",\"choices\":["
#define CHAT_DELTA CHAT_START "{\"index\":0,\"delta\":"
#define CHAT_REST ",\"logprobs\":null,\"finish_reason\":null}]}\n\n"
#define BLOCK_DELTA "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":%d,\"delta\":"
#define CALL_ID "call_DdmO9pD3xa9XTPNJ32zg2hcA"
#define USE_ID "toolu_01T1x1fJ34qAmk2tNTrN7Up6"

static const char *WORDS[] = {" words", " tok", " say \\\"hi\\\"\\n", " caf\xc3\xa9 \xf0\x9f\x98\x80"};
static const char *ARGUMENTS[] = {"{\\\"", "city", "\\\":\\\"", "Par", "is", "\\\"}"};

static int word_of(int chunk) { return chunk % 10 == 3 ? 2 : chunk % 17 == 5 ? 3 : chunk % 3 ? 1 : 0; }

static char *filler(int size, char kind) {
    const char *unit = kind == 'u'   ? "<tool_call>{\\\"name\\\": \\\"get_weather\\\", \\\"arguments\\\": {\\\"city\\\": ["
                       : kind == 'm' ? "a <b, <tool, [TOOL_, <|im and {\\\"nam or <function "
                                     : "abcdefg ";
    char *text = malloc(size + strlen(unit) + 1);
    int length = 0;
    while (length < size) length += sprintf(text + length, "%s", unit);
    return text;
}

static void add_chunk(Script *script, Piece shared[4], int chunk) { // the pieces of one script share their bytes
    int variant = script->size ? 0 : word_of(chunk);
    if (!shared[variant].bytes) {
        char *event, *text = script->size ? filler(script->size, script->kind) : strdup(WORDS[variant]);
        if (script->messages && script->kind == 'a')
            asprintf(&event, BLOCK_DELTA "{\"type\":\"input_json_delta\",\"partial_json\":\"%s" STAMP "\"}}\n\n", 0, text);
        else if (script->messages)
            asprintf(&event, BLOCK_DELTA "{\"type\":\"text_delta\",\"text\":\"%s" STAMP "\"}}\n\n", 0, text);
        else if (script->kind == 'a')
            asprintf(&event, CHAT_DELTA "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"%s" STAMP "\"}}]}" CHAT_REST, text);
        else
            asprintf(&event, CHAT_DELTA "{\"content\":\"%s" STAMP "\"}" CHAT_REST, text);
        shared[variant] = event_piece(event);
        free(event), free(text);
    }
    add(script, shared[variant].bytes, shared[variant].length);
}

static void stream_chat(Script *script) {
    Piece shared[4] = {0};
    char event[2048];
    int args = script->kind == 'a';
    add_event(script, CHAT_DELTA "{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}" CHAT_REST);
#define CHAT_CALL(opening)                                                                                                     \
    add_event(script, CHAT_DELTA "{\"tool_calls\":[{\"index\":0,\"id\":\"" CALL_ID                                             \
                                 "\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":\"" opening    \
                                 "\"}}]}" CHAT_REST)
    if (args) CHAT_CALL("{\\\"city\\\":\\\"");
    for (int chunk = 0; chunk < script->chunks; chunk++) add_chunk(script, shared, chunk);
    if (!args) CHAT_CALL("");
    for (int i = args ? 5 : 0; i < 6; i++) {
        sprintf(event, CHAT_DELTA "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"%s\"}}]}" CHAT_REST, ARGUMENTS[i]);
        add_event(script, event);
    }
    add_event(script, CHAT_DELTA "{},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}]}\n\n");
    sprintf(event,
            CHAT_START "],\"usage\":{\"prompt_tokens\":472,\"completion_tokens\":%d,\"total_tokens\":%d,"
                       "\"prompt_tokens_details\":{\"cached_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":0}}}\n\n",
            script->chunks, script->chunks + 472);
    add_event(script, event);
    add_event(script, "data: [DONE]\n\n");
    add(script, "0\r\n\r\n", 5);
}

static void stream_messages(Script *script) {
    Piece shared[4] = {0};
    char event[2048];
    int args = script->kind == 'a';
    add_event(script, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_01XFDUDYJgAACzvnptvVoYEL\","
                      "\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4\",\"content\":[],\"stop_reason\":null,"
                      "\"stop_sequence\":null,\"usage\":{\"input_tokens\":472,\"output_tokens\":2}}}\n\n");
#define OPEN_BLOCK(index, block)                                                                                               \
    add_event(script, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":" index                   \
                      ",\"content_block\":" block "}\n\n")
#define CLOSE_BLOCK(index)                                                                                                     \
    add_event(script, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":" index "}\n\n")
#define TOOL_USE "{\"type\":\"tool_use\",\"id\":\"" USE_ID "\",\"name\":\"get_weather\",\"input\":{}}"
    int call = args ? 0 : 1;
    if (args) {
        OPEN_BLOCK("0", TOOL_USE);
        sprintf(event, BLOCK_DELTA "{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"city\\\":\\\"\"}}\n\n", 0);
        add_event(script, event);
    } else {
        OPEN_BLOCK("0", "{\"type\":\"text\",\"text\":\"\"}");
    }
    for (int chunk = 0; chunk < script->chunks; chunk++) add_chunk(script, shared, chunk);
    if (!args) {
        CLOSE_BLOCK("0");
        OPEN_BLOCK("1", TOOL_USE);
    }
    for (int i = args ? 5 : 0; i < 6; i++) {
        sprintf(event, BLOCK_DELTA "{\"type\":\"input_json_delta\",\"partial_json\":\"%s\"}}\n\n", call, ARGUMENTS[i]);
        add_event(script, event);
    }
    if (args)
        CLOSE_BLOCK("0");
    else
        CLOSE_BLOCK("1");
    sprintf(event,
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},"
            "\"usage\":{\"output_tokens\":%d}}\n\n",
            script->chunks);
    add_event(script, event);
    add_event(script, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    add(script, "0\r\n\r\n", 5);
}

static void whole(Script *script) {
    const char *sentence = "The quick brown fox said \\\"hello\\\" to the lazy dog.\\n";
    size_t size = script->size ? (size_t)script->size * script->chunks : 25 * strlen(sentence);
    char *text = malloc(size + strlen(sentence) + 1), *body, *bytes;
    for (size_t length = 0; length < size;) length += sprintf(text + length, "%s", sentence);
    if (script->messages)
        asprintf(&body,
                 "{\"id\":\"msg_01XFDUDYJgAACzvnptvVoYEL\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4\","
                 "\"content\":[{\"type\":\"text\",\"text\":\"%s" STAMP "\"},{\"type\":\"tool_use\",\"id\":\"" USE_ID
                 "\",\"name\":\"get_weather\",\"input\":{\"city\":\"Paris\"}}],\"stop_reason\":\"tool_use\",\"stop_sequence\":null,"
                 "\"usage\":{\"input_tokens\":472,\"output_tokens\":200}}",
                 text);
    else
        asprintf(&body,
                 "{\"id\":\"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG\",\"object\":\"chat.completion\",\"created\":1741570283,"
                 "\"model\":\"gpt-4o-mini-2024-07-18\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%s" STAMP
                 "\",\"refusal\":null,\"annotations\":[],\"tool_calls\":[{\"id\":\"" CALL_ID
                 "\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\":\\\"Paris\\\"}\"}}]},"
                 "\"logprobs\":null,\"finish_reason\":\"tool_calls\"}],\"usage\":{\"prompt_tokens\":472,\"completion_tokens\":200,"
                 "\"total_tokens\":672,\"prompt_tokens_details\":{\"cached_tokens\":0,\"audio_tokens\":0},\"completion_tokens_details\":"
                 "{\"reasoning_tokens\":0,\"audio_tokens\":0,\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}},"
                 "\"service_tier\":\"default\",\"system_fingerprint\":\"fp_06737a9306\"}",
                 text);
    int length = asprintf(&bytes,
                          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nx-request-id: req_123\r\n\r\n%s",
                          strlen(body), body);
    add(script, bytes, length);
    free(text), free(body);
}

static Script *script_for(int messages, int streamed, int chunks, int size, char kind) {
    for (Script *known = scripts; known; known = known->next)
        if (known->messages == messages && known->streamed == streamed && known->chunks == chunks && known->size == size && known->kind == kind)
            return known;
    Script *made = calloc(1, sizeof *made);
    *made = (Script){.messages = messages, .streamed = streamed, .chunks = chunks, .size = size, .kind = kind, .next = scripts};
    scripts = made;
    if (!streamed) {
        whole(made);
        return made;
    }
    char *head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
                 "Transfer-Encoding: chunked\r\nx-request-id: req_123\r\n\r\n";
    add(made, head, strlen(head));
    if (messages)
        stream_messages(made);
    else
        stream_chat(made);
    return made;
}

// ---------------------------------------------------------------------------------------------------- connections

static void leave(Connection *c) {
    if (c->slot < 0) return;
    active[c->slot] = active[--active_count];
    active[c->slot]->slot = c->slot;
    c->slot = -1;
}

static void drop(Connection *c) {
    leave(c);
    close(c->fd);
    free(c->in), free(c->out), free(c);
}

static void wait_for_room(Connection *c, int blocked) {
    if (c->blocked == blocked) return;
    c->blocked = blocked;
    struct epoll_event event = {.events = EPOLLIN | (blocked ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &event);
}

static int answer_requests(Connection *c);

// Both return -1 when the connection is gone.
static int send_pieces(Connection *c) {
    int sends = 0;
    while (c->script) {
        if (c->out_sent == c->out_length) {
            if (c->next == c->script->count) {
                c->script = NULL;
                leave(c);
                wait_for_room(c, 0);
                return answer_requests(c);
            }
            uint64_t time = now();
            Piece *piece = &c->script->pieces[c->next];
            if (c->pace_us && piece->stamp >= 0) {
                if (time < c->due) return 0;
                uint64_t pace = c->pace_us * 1000ull;
                c->due += pace / 2 + jitter() % (uint32_t)(pace < UINT32_MAX ? pace + 1 : UINT32_MAX);
                if (c->due < time) c->due = time;
            } else if (!c->pace_us && ++sends > SENDS_IN_TURN) {
                c->due = 0;
                return 0;
            }
            memcpy(c->out, piece->bytes, piece->length);
            if (piece->stamp >= 0)
                for (int digit = 17; digit >= 0; digit--, time /= 10) c->out[piece->stamp + digit] = '0' + time % 10;
            c->out_length = piece->length, c->out_sent = 0, c->next++;
        }
        ssize_t sent = send(c->fd, c->out + c->out_sent, c->out_length - c->out_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            wait_for_room(c, 1);
            return 0;
        }
        if (sent < 0) {
            drop(c);
            return -1;
        }
        c->out_sent += sent;
    }
    return 0;
}

static int find_end(Connection *c) { // is a whole request there? its length is then c->whole
    if (!c->head) {
        char *end = memmem(c->in, c->in_length, "\r\n\r\n", 4);
        if (!end) return 0;
        c->head = end + 4 - c->in;
        size_t length = 0;
        c->chunked = 0;
        for (char *line = c->in; line < end; line = (char *)memmem(line, end + 2 - line, "\r\n", 2) + 2) {
            if (!strncasecmp(line, "content-length:", 15)) length = strtoull(line + 15, NULL, 10);
            if (!strncasecmp(line, "transfer-encoding:", 18)) c->chunked = 1;
        }
        c->whole = c->chunked ? 0 : c->head + length;
        c->searched = c->head;
    }
    if (c->chunked && !c->whole) {
        char *end = memmem(c->in + c->searched, c->in_length - c->searched, "\r\n0\r\n\r\n", 7);
        if (end) c->whole = end + 7 - c->in;
        c->searched = c->in_length > c->head + 6 ? c->in_length - 6 : c->head;
    }
    return c->whole && c->in_length >= c->whole;
}

static void choose_script(Connection *c) {
    char *body = c->in + c->head, *line_end = memmem(c->in, c->head, "\r\n", 2);
    size_t length = c->whole - c->head;
    int messages = !!memmem(c->in, line_end - c->in, "/messages", 9);
    int streamed = memmem(body, length, "\"stream\":true", 13) || memmem(body, length, "\"stream\": true", 14);
    int chunks = 200, size = 0;
    char kind = 't', *name = memmem(body, length, "fake-", 5);
    c->pace_us = 0;
    for (char *at = name ? name + 4 : NULL; at && *at == '-'; at += 2 + strcspn(at + 2, "-\"")) {
        if (at[1] == 'p') c->pace_us = atoi(at + 2);
        if (at[1] == 'n') chunks = atoi(at + 2);
        if (at[1] == 's') size = atoi(at + 2);
        if (at[1] == 'k') kind = at[2];
    }
    if (kind != 't' && !size) size = 64; // the words would not be JSON inside of arguments
    c->script = script_for(messages, streamed, chunks, size, kind);
}

static int answer_requests(Connection *c) {
    while (!c->script && c->in_length && find_end(c)) {
        int post = !strncmp(c->in, "POST", 4);
        if (post) choose_script(c);
        memmove(c->in, c->in + c->whole, c->in_length - c->whole);
        c->in_length -= c->whole;
        c->in[c->in_length] = 0;
        c->head = c->whole = 0;
        if (!post) {
            const char *list = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 60\r\n\r\n"
                               "{\"object\":\"list\",\"data\":[{\"id\":\"fake-p0\",\"object\":\"model\"}]}";
            if (send(c->fd, list, strlen(list), MSG_NOSIGNAL) < 0) {
                drop(c);
                return -1;
            }
            continue;
        }
        if (c->out_room < c->script->longest) c->out = realloc(c->out, c->out_room = c->script->longest);
        c->next = c->out_length = c->out_sent = 0;
        c->due = now();
        c->slot = active_count, active[active_count++] = c;
        if (send_pieces(c) < 0) return -1;
    }
    return 0;
}

static int receive(Connection *c) {
    if (c->in_room < c->in_length + 65536) {
        c->in_room = c->in_room ? c->in_room * 2 : 65536 * 2;
        c->in = realloc(c->in, c->in_room);
    }
    ssize_t got = recv(c->fd, c->in + c->in_length, c->in_room - c->in_length - 1, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
        drop(c);
        return -1;
    }
    if (got < 0) return 0;
    c->in_length += got;
    c->in[c->in_length] = 0;
    return answer_requests(c);
}

static void accept_all(int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        Connection *c = calloc(1, sizeof *c);
        c->fd = fd, c->slot = -1;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event);
    }
}

int main(int count, char **values) {
    if (count != 2) {
        fprintf(stderr, "usage: upstream PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(values[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 4096)) {
        perror("upstream");
        return 1;
    }
    poll_fd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &event);
    static struct epoll_event events[512];
    for (;;) {
        uint64_t time = now(), first = UINT64_MAX;
        for (int i = 0; i < active_count; i++)
            if (!active[i]->blocked && active[i]->due < first) first = active[i]->due;
        uint64_t left = first > time ? first - time : 0;
        struct timespec wait = {left / 1000000000ull, left % 1000000000ull};
        int ready = epoll_pwait2(poll_fd, events, 512, first == UINT64_MAX ? NULL : &wait, NULL);
        for (int i = 0; i < ready; i++) {
            Connection *c = events[i].data.ptr;
            if (!c) {
                accept_all(listener);
            } else if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
                receive(c);
            } else if (events[i].events & EPOLLOUT) {
                wait_for_room(c, 0);
                send_pieces(c);
            }
        }
        time = now();
        for (int i = active_count - 1; i >= 0; i--)
            if (i < active_count && !active[i]->blocked && active[i]->due <= time) send_pieces(active[i]);
    }
}
