// A closed-loop HTTP/1.1 load generator for streamed and whole model answers: one thread, epoll, loopback only.
//
// Every answer is checked: status 200, the expected number of stamps, the end string. A stamp is "@<18 digits>;", the
// CLOCK_MONOTONIC nanoseconds at which the upstream (upstream.c) wrote the chunk, whatever the dialect between.
//
//   first: request written -> first stamp seen     total: request written -> answer complete
//   delay: chunk written upstream -> seen here
//
// Prints one JSON line; times in microseconds.
//
// usage: load -p PORT -u PATH -c CONCURRENT -n TOTAL -b BODY_FILE [-e STAMPS] [-E END_STRING] [-H 'Name: value']...
//             [-t MOST_SECONDS] [-x PERCENT of answers left in the middle, after their first stamp]
//             [-r STREAMS begun per second at the start; left out: all at once]
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

#define HEAD_ROOM 65536
#define BODY_ROOM (1 << 20) // when it is full the last TAIL bytes stay
#define TAIL 4096
#define MOST_DELAYS 8000000

enum Framing { SIZE, SIZE_REST, DATA, DATA_END, TRAILER };

typedef struct {
    int fd, busy, in_body, chunked, line_begun;
    size_t sent;
    char *head, *body;
    int head_length, body_length, searched, stamps;
    long long content_length, body_total, chunk_left;
    enum Framing framing;
    uint64_t began;
} Stream;

typedef struct {
    double *values;
    long count, room;
} Sample;

static int port, concurrent = 1, total = 1, expected = -1, most_seconds = 120, leave_percent, per_second;
static char *path = "/v1/chat/completions", *end_string, headers[8192], first_error[400];
static char *request;
static size_t request_length;
static int poll_fd, started, done, errors, reconnected, left;
static long chunks, bytes, reads;
static Sample firsts, totals, delays;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void keep(Sample *sample, double value) {
    if (sample->count == MOST_DELAYS) return;
    if (sample->count == sample->room) {
        sample->room = sample->room ? sample->room * 2 : 4096;
        sample->values = realloc(sample->values, sample->room * sizeof(double));
    }
    sample->values[sample->count++] = value;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double share(Sample *sample, double part) {
    return sample->count ? sample->values[(long)(part * (sample->count - 1) + 0.5)] : -1;
}

static void begin(Stream *s);

static void watch(Stream *s, int operation, int sending) {
    struct epoll_event event = {.events = EPOLLIN | (sending ? EPOLLOUT : 0), .data.ptr = s};
    epoll_ctl(poll_fd, operation, s->fd, &event);
}

static int dial(Stream *s) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    s->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s->fd, (void *)&address, sizeof address)) {
        close(s->fd);
        s->fd = -1;
        return -1;
    }
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    watch(s, EPOLL_CTL_ADD, 0);
    return 0;
}

static void hang_up(Stream *s) {
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
}

static void finish(Stream *s, const char *error) {
    if (!error && expected >= 0 && s->stamps != expected) error = "number of stamps";
    if (!error && end_string && !memmem(s->body, s->body_length, end_string, strlen(end_string))) error = "no end string";
    if (error) {
        errors++;
        if (!*first_error)
            snprintf(first_error, sizeof first_error, "%s; %d stamps; %.60s | %.200s", error, s->stamps, s->head, s->body);
    } else {
        keep(&totals, (now() - s->began) / 1e3);
    }
    done++;
    s->busy = 0;
    begin(s);
}

static void send_rest(Stream *s) {
    ssize_t sent = send(s->fd, request + s->sent, request_length - s->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) return; // the read side tells
    int whole_before = s->sent == 0;
    if (sent > 0) s->sent += sent;
    if (s->sent < request_length)
        watch(s, EPOLL_CTL_MOD, 1);
    else if (!whole_before)
        watch(s, EPOLL_CTL_MOD, 0);
}

static void begin(Stream *s) {
    if (started >= total) return;
    started++;
    s->busy = 1;
    s->in_body = s->chunked = s->line_begun = 0;
    s->sent = 0;
    s->head_length = s->body_length = s->searched = s->stamps = 0;
    s->content_length = -1;
    s->body_total = s->chunk_left = 0;
    s->framing = SIZE;
    if (s->fd < 0 && dial(s)) {
        snprintf(first_error, sizeof first_error, "cannot connect");
        errors = done = total;
        return;
    }
    s->began = now();
    send_rest(s);
}

static void take(Stream *s, const char *data, long length, uint64_t time) {
    s->body_total += length;
    while (length > 0) {
        if (s->body_length + length > BODY_ROOM && s->body_length > TAIL) {
            int cut = s->body_length - TAIL;
            memmove(s->body, s->body + cut, TAIL);
            s->body_length = TAIL;
            s->searched = s->searched > cut ? s->searched - cut : 0;
        }
        long part = length < BODY_ROOM - s->body_length ? length : BODY_ROOM - s->body_length;
        memcpy(s->body + s->body_length, data, part);
        s->body_length += part, data += part, length -= part;
        s->body[s->body_length] = 0;
        char *at;
        while ((at = memchr(s->body + s->searched, '@', s->body_length - s->searched))) {
            s->searched = (int)(at - s->body);
            if (s->body_length - s->searched < 20) break;
            s->searched++;
            if (at[19] != ';') continue;
            uint64_t written = 0;
            for (int digit = 1; digit < 19; digit++) written = written * 10 + (at[digit] - '0');
            if (!s->stamps++) keep(&firsts, (time - s->began) / 1e3);
            chunks++;
            keep(&delays, ((double)time - (double)written) / 1e3);
        }
        if (!at) s->searched = s->body_length;
    }
}

static int read_head(Stream *s, char **at, long length) { // 1: the body begins at *at; 0: more to come
    int before = s->head_length, room = HEAD_ROOM - 1 - before, part = length < room ? length : room;
    memcpy(s->head + before, *at, part);
    s->head_length += part;
    s->head[s->head_length] = 0;
    char *end = memmem(s->head, s->head_length, "\r\n\r\n", 4);
    if (!end) return 0;
    *at += end + 4 - s->head - before;
    s->in_body = 1;
    for (char *line = s->head; line < end; line = (char *)memmem(line, end + 2 - line, "\r\n", 2) + 2) {
        if (!strncasecmp(line, "content-length:", 15)) s->content_length = atoll(line + 15);
        if (!strncasecmp(line, "transfer-encoding:", 18)) s->chunked = 1;
    }
    end[4] = 0;
    return 1;
}

static int hexadecimal(char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; }

static int read_chunks(Stream *s, char *at, char *end, uint64_t time) { // 1: the answer is complete
    while (at < end) switch (s->framing) {
        case SIZE:
        case SIZE_REST: {
            char c = *at++;
            if (c == '\n') {
                s->framing = s->chunk_left ? DATA : TRAILER;
                s->line_begun = 0;
            } else if (c == ';') {
                s->framing = SIZE_REST;
            } else if (c != '\r' && s->framing == SIZE) {
                s->chunk_left = s->chunk_left * 16 + hexadecimal(c);
            }
            break;
        }
        case DATA: {
            long part = end - at < s->chunk_left ? end - at : s->chunk_left;
            take(s, at, part, time);
            at += part;
            if (!(s->chunk_left -= part)) s->framing = DATA_END;
            break;
        }
        case DATA_END:
            if (*at++ == '\n') s->framing = SIZE;
            break;
        case TRAILER: {
            char c = *at++;
            if (c == '\n' && !s->line_begun) return 1;
            if (c != '\r') s->line_begun = c != '\n';
            break;
        }
    }
    return 0;
}

static int leaves(Stream *s) {
    static uint32_t state = 2463534242u;
    if (!leave_percent || !s->stamps || s->busy != 1) return 0;
    s->busy = 2; // decided once per answer
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    return (int)(state % 100) < leave_percent;
}

static void receive(Stream *s) {
    static char buffer[1 << 18];
    ssize_t got = recv(s->fd, buffer, sizeof buffer, 0);
    uint64_t time = now();
    reads++;
    if (got <= 0) {
        hang_up(s);
        if (!s->busy) return;
        if (s->in_body && !s->chunked && s->content_length < 0) {
            finish(s, NULL);
        } else if (!s->head_length) { // a kept connection that was closed as we asked: ask again
            if (++reconnected > total + concurrent) {
                finish(s, "closed without an answer");
                return;
            }
            started--;
            begin(s);
        } else {
            finish(s, "closed early");
        }
        return;
    }
    bytes += got;
    if (!s->busy) return;
    char *at = buffer, *end = buffer + got;
    if (!s->in_body) {
        if (!read_head(s, &at, got)) return;
        if (atoi(s->head + 9) != 200) {
            take(s, at, end - at, time);
            hang_up(s);
            finish(s, "status");
            return;
        }
    }
    int complete = 0;
    if (s->chunked) {
        complete = read_chunks(s, at, end, time);
    } else {
        take(s, at, end - at, time);
        complete = s->content_length >= 0 && s->body_total >= s->content_length;
    }
    if (complete) {
        finish(s, NULL);
    } else if (leaves(s)) {
        hang_up(s);
        left++, done++, s->busy = 0;
        begin(s);
    }
}

static void read_body(const char *file) {
    FILE *source = fopen(file, "rb");
    if (!source) {
        perror(file);
        exit(2);
    }
    fseek(source, 0, SEEK_END);
    long length = ftell(source);
    rewind(source);
    request = malloc(length + 16384);
    request_length = sprintf(request,
                             "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nAccept: */*\r\n%s"
                             "Content-Length: %ld\r\n\r\n",
                             path, port, headers, length);
    request_length += fread(request + request_length, 1, length, source);
    fclose(source);
}

static void report(double seconds) {
    Sample *samples[] = {&firsts, &totals, &delays};
    for (int i = 0; i < 3; i++) qsort(samples[i]->values, samples[i]->count, sizeof(double), ascending);
    for (char *at = first_error; *at; at++)
        if ((unsigned char)*at < 32 || (unsigned char)*at > 126 || *at == '"' || *at == '\\') *at = ' ';
    printf("{\"done\":%d,\"errors\":%d,\"left\":%d,\"reconnected\":%d,\"seconds\":%.4f,\"chunks\":%ld,\"reads\":%ld,\"bytes\":%ld,"
           "\"cpu_s\":%.4f,\"requests_per_s\":%.1f,\"chunks_per_s\":%.1f,\"first_p50\":%.1f,\"first_p99\":%.1f,\"total_p50\":%.1f,\"total_p99\":%.1f,"
           "\"delay_p50\":%.1f,\"delay_p90\":%.1f,\"delay_p99\":%.1f,\"delay_max\":%.1f,\"error\":\"%s\"}\n",
           done, errors, left, reconnected, seconds, chunks, reads, bytes, clock() / (double)CLOCKS_PER_SEC, (done - errors) / seconds, chunks / seconds,
           share(&firsts, .5), share(&firsts, .99), share(&totals, .5), share(&totals, .99), share(&delays, .5), share(&delays, .9),
           share(&delays, .99), share(&delays, 1), first_error);
}

int main(int count, char **values) {
    signal(SIGPIPE, SIG_IGN);
    char *body = NULL;
    for (int option; (option = getopt(count, values, "p:u:c:n:b:e:E:H:t:x:r:")) != -1;) switch (option) {
        case 'p': port = atoi(optarg); break;
        case 'u': path = optarg; break;
        case 'c': concurrent = atoi(optarg); break;
        case 'n': total = atoi(optarg); break;
        case 'b': body = optarg; break;
        case 'e': expected = atoi(optarg); break;
        case 'E': end_string = optarg; break;
        case 't': most_seconds = atoi(optarg); break;
        case 'x': leave_percent = atoi(optarg); break;
        case 'r': per_second = atoi(optarg); break;
        case 'H':
            if (strlen(headers) + strlen(optarg) + 3 > sizeof headers) return 2;
            strcat(strcat(headers, optarg), "\r\n");
            break;
        default: return 2;
        }
    if (!port || !body) {
        fprintf(stderr, "load: -p PORT and -b BODY_FILE are needed\n");
        return 2;
    }
    read_body(body);
    poll_fd = epoll_create1(0);
    Stream *streams = calloc(concurrent, sizeof *streams);
    for (int i = 0; i < concurrent; i++) {
        streams[i].head = calloc(1, HEAD_ROOM), streams[i].body = calloc(1, BODY_ROOM + 1), streams[i].fd = -1;
        if (!per_second) dial(&streams[i]);
    }
    uint64_t start = now();
    int begun = 0;
    static struct epoll_event events[512];
    while (done < total) {
        double allowed = per_second ? 1 + (now() - start) / 1e9 * per_second : concurrent;
        while (begun < concurrent && begun < allowed) begin(&streams[begun++]);
        int ready = epoll_wait(poll_fd, events, 512, begun < concurrent ? 5 : 1000);
        for (int i = 0; i < ready && done < total; i++) {
            Stream *s = events[i].data.ptr;
            if (events[i].events & EPOLLOUT && s->fd >= 0 && s->busy) send_rest(s);
            if (events[i].events & ~EPOLLOUT && s->fd >= 0) receive(s);
        }
        int late = (now() - start) / 1000000000ull > (uint64_t)most_seconds;
        if (late && !*first_error) snprintf(first_error, sizeof first_error, "timeout");
        if (late || errors > concurrent * 4 + 20) {
            errors += total - done;
            done = total;
        }
    }
    report((now() - start) / 1e9);
    return 0;
}
