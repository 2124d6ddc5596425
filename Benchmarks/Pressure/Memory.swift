import Glibc

/// Anonymous memory of a process of the scene, like an application's heap.
struct Memory {
    static let mebibyte = 1 << 20
    static let page = 4096

    private let base: UnsafeMutablePointer<UInt64>
    private let size: Int

    /// Reserves addresses. The kernel allocates a page when it is touched.
    init(mebibytes: Int) {
        size = mebibytes * Self.mebibyte
        let protection = PROT_READ | PROT_WRITE
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        guard let address = mmap(nil, size, protection, flags, -1, 0), address != MAP_FAILED else {
            Scene.fail("no addresses for \(mebibytes) MiB")
        }
        // With huge pages, memory would be allocated and freed in other steps than the scene describes.
        madvise(address, size, MADV_NOHUGEPAGE)
        base = address.bindMemory(to: UInt64.self, capacity: size / 8)
    }

    /// Touches a part. Half of each page is noise and half is empty, so that compressed swap packs it about two to one,
    /// and no two pages are alike.
    func touch(from offset: Int, count: Int) {
        let words = Self.page / 8
        for first in stride(from: offset / 8, to: (offset + count) / 8, by: words) {
            var noise = UInt64(bitPattern: Int64(first)) &* 0x9E37_79B9_7F4A_7C15 | 1
            for word in first..<first + words / 2 {
                noise ^= noise << 13
                noise ^= noise >> 7
                noise ^= noise << 17
                base[word] = noise
            }
        }
    }

    /// Writes one word to each page of a part. The kernel allocates the pages, and the rest of each stays empty.
    func mark(from offset: Int, count: Int) {
        for byte in stride(from: offset, to: offset + count, by: Self.page) { base[byte / 8] = 1 }
    }

    /// Reads and writes a word of every page.
    func walk() {
        for byte in stride(from: 0, to: size, by: Self.page) { base[byte / 8] &+= 1 }
    }

    /// A number below `count`, from a pseudorandom sequence that is the same in each run.
    static func pick(_ count: Int, _ seed: inout UInt64) -> Int {
        seed = seed &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return Int(seed >> 33) % count
    }

    /// Reads and writes a word in each of `count` pages, picked by `seed`.
    func use(pages count: Int, seed: inout UInt64) {
        for _ in 0..<count {
            let page = Self.pick(size / Self.page, &seed)
            base[page * Self.page / 8] &+= 1
        }
    }
}

/// The pages of this program's file, which the kernel may drop and must then read from the disk again, like the code,
/// fonts and pictures of an application in use.
struct Program {
    private let base: UnsafeRawPointer
    private let pages: Int

    init() {
        let file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC)
        var information = stat()
        guard file >= 0, fstat(file, &information) == 0,
            let address = mmap(nil, information.st_size, PROT_READ, MAP_PRIVATE, file, 0),
            address != MAP_FAILED
        else { Scene.fail("cannot map the program") }
        close(file)
        base = UnsafeRawPointer(address)
        pages = information.st_size / Memory.page
    }

    func use(pages count: Int, seed: inout UInt64) {
        var sum: UInt64 = 0
        for _ in 0..<count {
            sum ^= base.load(fromByteOffset: Memory.pick(pages, &seed) * Memory.page, as: UInt64.self)
        }
        // Keeps the compiler from removing the reads.
        seed ^= sum & 1
    }
}
